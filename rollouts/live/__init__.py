"""Live pages and feeds: from the change feed in Redis to server-sent events in a browser or a program.

A change takes this way: `change_feed` (the stream in Redis) -> `hub` (one reader for each event loop) -> for programs
`api.feed`; for pages `subscriptions` (one channel for each part of a page) -> `fragment_cache` (one rendering for all
viewers) -> `stream` (one response for each page). `sse` holds what both kinds of response share: limits, permission
checks, heartbeats. `registry.LIVE` owns all state of a process.
"""
