"""The program: `python -m tests.standin KUBECONFIG`."""

import argparse
from pathlib import Path

from rollouts.cluster import ClusterClient, RetryPolicy, kubeconfig
from rollouts.sandbox.cluster import pod_lifecycle
from tests.standin.machines import WATCHED, WRITERS, StandIn


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.standin", description="Schedule and run pods, in pretence.")
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--ready", type=float, default=0.1, help="seconds from binding to Ready")
    parser.add_argument("--termination", type=float, default=0.0, help="seconds from delete to gone")
    options = parser.parse_args()
    # Quick tries: the tests restart the server and want to go on as soon as it is back.
    patience = RetryPolicy(max_backoff=0.5, initial_backoff=0.05)
    cluster = ClusterClient(kubeconfig(options.kubeconfig), retry_policy=patience, pool_size=WRITERS + len(WATCHED))
    StandIn(cluster, pod_lifecycle.KubeletTimings(ready=options.ready, termination=options.termination)).run()


if __name__ == "__main__":
    main()
