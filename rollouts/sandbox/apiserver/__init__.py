"""The API half: what a kube-apiserver does, from the request to the stored object.

    http, paths, requests          a request is read, bounded and understood
    verbs, updates, deletion, ...  what is asked for is done, by an API server's rules
    registry, schema, cel          the kinds, from CRD manifests: pruned, defaulted, checked
    apply, ownership, fieldsets    who owns which field
    store                          all objects, one revision counter, the log that watches follow
    tables, discovery, openapi     what kubectl asks for besides objects

It knows nothing of the behaviour half.
"""
