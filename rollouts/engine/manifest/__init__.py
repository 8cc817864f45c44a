"""A PodCliqueSet manifest: its schema and defaults, its validation, its edits, and how it becomes a Workload."""
