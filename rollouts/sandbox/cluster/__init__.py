"""The behaviour half: what else lives in a cluster, from the scheduler to the garbage collector.

    scheduler, kubelet, machine, garbage, ...   what to do, as functions of values and of time
    controllers                                 gather, ask one of those, and write through the API's verbs
    simulation                                  shows every stored change to the controllers, gives each its turn

It has no privileged way into the store: whatever it does, a client could see done on a real cluster.
"""
