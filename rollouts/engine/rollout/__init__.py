"""The rolling algorithm, with order, budgets by level, gangs and gang termination (`docs/semantics.md`)."""
