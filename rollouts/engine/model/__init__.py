"""The values that decisions read and return: the workload, the observed objects, and the actions of a plan."""
