"""Everything that changes something, a module for each subject; each command is checked, executed and audited.

API, pages and admin call these. A command takes who calls it (`audit.Caller`), which workload it is about
(`accounts.commands.WorkloadRef`) and what to change; it returns a value, or raises an error of `accounts.errors` with
the sentence to show. The invariant: a command that is refused changes nothing.

    changes, workloads      changes of a workload as values, and the function that makes them
    edit, apply, scaling    how each kind of change reaches the cluster
    simulation              what a change would do
    pods, surge, deletion   pods that a person deletes
    workload_deletion       a workload that a person deletes
    takeover                a workload that Grove's own operator manages
    overrides               strategy overrides; `override_preview` checks them
    first_account, tokens, passwords, single_sign_on    accounts
    audit                   who called, and the audit log
"""
