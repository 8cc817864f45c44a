"""Decisions about Grove workloads, as functions of values: no clock, no I/O, nothing but Python.

Manifest → `parsing` → `workload.Workload`; with what is observed → `planner.plan` → what to do, the status, and why it
waits. The controller, the preview and the tests run the same code.
"""
