"""What people command, a module for each thing that they command; each command is checked, carried out and audited.

Entry points (API, pages, admin) call these and nothing else that changes something. A command takes who gives it
(`audit.Caller`), where (`commands.WorkloadRef`) and what; it returns a value, or raises one of `errors` with the
sentence to show. The invariant: what is refused changes nothing.
"""
