"""The API server of the sandbox: what a kube-apiserver does, from the request to the stored object.

    asgi, paths, requests, handlers                read a request, limit it, choose the verb
    verbs, updates, deletion, ...                  carry it out by the rules of an API server
    registry, schema, cel                          the kinds, from CRD manifests; prune, default, validate
    server_side_apply, managed_fields, fieldsets   which manager owns which field
    storage, watch                                 all objects, one revision counter, the change log of the watches
    tables, discovery, openapi                     what kubectl asks for besides objects

It does not import `rollouts.sandbox.cluster`, which holds the controllers.
"""
