"""One pass over a workload: its actions, its statuses, and why it waits."""
