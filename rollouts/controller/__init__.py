"""One pass of the controller: read the mirror, plan, write to the cluster, record what happened."""
