"""A simulated cluster behind the Kubernetes API, in one process on loopback.

`apiserver` answers requests as an API server does; `cluster` is what else lives in a cluster: scheduler, kubelets,
garbage collection. The two meet only in `apiserver.verbs` (to write) and in the listeners of `apiserver.store` (to
hear). `seed` is the cluster that a new sandbox starts with, `__main__` the process.
"""
