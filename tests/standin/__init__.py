"""Scheduler and kubelets for a real API server that has none: binds pods gang by gang, makes them Ready, removes them.

A real kube-apiserver stores pods but runs none. This process (`python -m tests.standin`) stands in for the machines, so
that tests and benchmarks can run the controller on the real API. It is a client like any other: it watches pods,
PodGangs and nodes, and writes bindings, statuses and removals. It decides by the same pure functions as the sandbox
(`engine.scheduling.placement.schedule`, `pod_lifecycle.compute_status`), so a workload meets the same rules on both:
requests against allocatable, cordoned nodes, a gang's minimum all at once, `:broken` images that never become Ready,
`sandbox.grove.io/ready-seconds` on a pod.

Unlike a kubelet it writes few statuses: a pod gets its Ready status when it is due, and only a pod that never becomes
Ready gets the ones before. Nothing polls; the process sleeps until a watch has a change or something is due. It keeps
no state: after a kill it goes on from what the API shows.
"""
