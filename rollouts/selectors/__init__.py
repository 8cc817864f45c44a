"""Everything that pages and API read, a module for each subject.

Selectors build frozen values from the mirror and the history with a constant number of queries. They change nothing,
and only `events` sends a request to a cluster. Clusters that are not configured are hidden.

    workload_snapshot       one workload with its effective strategy, as the engine sees it; the visible clusters
    workload_state          the four states that lists sort and count by, as SQL; the reason beside them
    effective_strategies    the strategies of many workloads at once, with overrides
    workloads, workload_rows, search    the list of workloads
    tree, pod_grid, activity            the page of a workload
    forecast, remedies, diagnosis       what a workload waits for, and what would help
    paging                  a part of a long list

The words outdated, available, surge and complete are the engine's (`engine.tree.availability`). Manifests are masked:
for the reader where a selector takes one, and otherwise for the public.
"""
