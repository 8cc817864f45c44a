"""A simulated cluster behind the Kubernetes API, in one process on loopback.

`apiserver` answers requests as an API server does; `cluster` holds what else runs in a cluster: scheduler, kubelets,
garbage collector. The controllers of `cluster` write only through `apiserver.verbs` and observe changes only by
subscribing to `apiserver.storage`. `admission_webhook` validates PodCliqueSets as the product's webhook does, `seed`
creates the objects that a new sandbox starts with, `__main__` is the process. Both halves use `conditions` and `times`.
"""
