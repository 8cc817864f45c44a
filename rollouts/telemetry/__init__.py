"""Telemetry of the product itself: metrics, heartbeats, and limits to the log."""
