"""Which pending pod fits on which node: resource requests, constraints, and gang placement."""
