"""The rest of a cluster beside its API server: scheduler, kubelets, nodes, garbage collector and other controllers.

    pod_lifecycle, node, garbage_collection, ...   what to do, as functions of values and of time
    cache                                          pods, nodes and gangs, indexed for the controllers
    controllers                                    gather the input, call one of those functions, write through `client`
    controller_manager                             passes every stored change to the controllers, gives each its turn

The controllers write only through the verbs of the API, so a client sees nothing that a real cluster could not do.
"""
