"""Live pages and feeds: the change feed, its readers, and the server-sent events that carry it."""
