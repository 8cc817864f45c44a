"""The observed objects arranged by replica, scaling group and PodClique."""
