"""What the product says about itself: metrics, heartbeats, and limits to its log."""
