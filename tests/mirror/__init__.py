"""The mirror and the watcher that keeps it."""
