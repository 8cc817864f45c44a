"""Decisions about Grove workloads as pure functions: no clock, no I/O, only the standard library.

`manifest.parsing` makes a Workload of a manifest; `plan.planner` takes it with the observed objects and returns the
actions, the statuses and the waits of one pass. The controller, the preview and the tests run the same code.
`docs/semantics.md` has the rules.
"""
