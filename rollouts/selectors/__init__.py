"""What pages and the API read, a module for each thing that they show.

Selectors return frozen values made from the mirror and the history with a constant number of queries; they never ask a
cluster and never change anything. Only clusters that are configured are shown: rows of others stay hidden.

    places      the clusters that are shown, and one workload as the engine looks at it
    standing    the four states that lists sort and count by, as SQL
    in_force    the strategies of many workloads at once, overrides put in
    paging      a part of a long list

Words like outdated, available, surge and complete are the engine's own (`engine.tree.views`); what a manifest holds
leaves through `masking`: as the reader may see it where a selector is told who reads, else as everybody may.
"""
