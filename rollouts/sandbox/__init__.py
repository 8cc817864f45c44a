"""A simulated cluster behind the Kubernetes API, in one process on loopback.

The API half (`http` → `verbs` → `store`) answers requests as an API server does; the behaviour half
(`simulation` and its `controllers`) is what else lives in a cluster: scheduler, kubelets, garbage collection.
The two meet only in `verbs` (to write) and in the store's listeners (to hear): the behaviour half has no
privileged way into the store, so whatever it does a client could see done on a real cluster.
"""
