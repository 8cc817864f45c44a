"""The rolling algorithm, and what stands around it: order, budgets by level, gangs, termination."""
