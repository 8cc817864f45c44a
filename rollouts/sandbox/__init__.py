"""A simulated cluster behind the Kubernetes API, in one process on loopback.

`api` answers requests as an API server does; `behaviour` is what else lives in a cluster: scheduler, kubelets, garbage
collection. The two meet only in `api.verbs` (to write) and in the listeners of `api.store` (to hear). `world` is the
cluster that a new sandbox starts with, `__main__` the process.
"""
