"""The values that decisions are made of: the workload, the observed objects, and the actions of a plan."""
