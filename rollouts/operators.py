"""Whether another operator keeps the workloads of a cluster: Grove's own.

Two controllers that write the same objects undo each other's work, and the pods pay for it. So a pass and a command ask
here before they write, and the watcher puts the answer on the cluster's row for the pages. Grove's operator is there
when the definition of PodCliqueSets is not ours, or when its lease is renewed.

The invariant: who cannot find out writes nothing. An account that may not look gets a sentence as well, and a cluster
that does not answer raises.
"""

import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from rollouts.cluster import Cluster, Forbidden, NotFound
from rollouts.cluster.resources import CUSTOMRESOURCEDEFINITIONS, LEASES
from rollouts.engine.times import parse_time

OTHER_OPERATOR: Final = "OtherOperator"

# On our definitions (deploy/crds), and on nobody else's.
DEFINITION: Final = "grove-ui.io/definition"
GROVE_LEASE: Final = "grove-operator-leader-election"
# On every PodCliqueSet that Grove's operator keeps, or has kept.
GROVE_FINALIZER: Final = "grove.io/podcliqueset.grove.io"

_POD_CLIQUE_SETS: Final = "podcliquesets.grove.io"
_FRESH_SECONDS: Final = 60.0  # how long a lease counts after it was renewed
_SECONDS_BETWEEN_LOOKS: Final = 10.0

_FOREIGN_DEFINITION: Final = (
    "The definition of PodCliqueSets in this cluster is not Grove UI's, so another operator may run these workloads. "
    "Grove UI shows them and changes nothing here. If the definition is from an earlier Grove UI, apply deploy/crds."
)
_LEASE_RENEWED: Final = (
    "Grove's own operator runs in this cluster and renews the lease {}. "
    "Grove UI shows the workloads and changes nothing here as long as that operator runs."
)
_MAY_NOT_LOOK: Final = (
    "Our account may not {}, so Grove UI cannot tell whether another operator runs these workloads and changes nothing "
    "here. Apply deploy/rbac/controller.yaml."
)
_KEPT_BY_GROVE: Final = (
    f"The finalizer {GROVE_FINALIZER} says that Grove's own operator keeps this set. "
    "Grove UI shows it and changes nothing."
)


class OperatorCheck:
    """Looks for another operator in one cluster. Safe to share between threads."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._renewed: dict[str, str] = {}  # by lease, as the look before this one saw it
        self._found = ""
        self._looked_at = float("-inf")  # monotonic

    def find(self) -> str:
        """Return why nothing may be written, as of a few seconds ago at most; raises what keeps us from looking."""
        with self._lock:
            if time.monotonic() - self._looked_at > _SECONDS_BETWEEN_LOOKS:
                self._found = self._look()
                self._looked_at = time.monotonic()
            return self._found

    def look(self) -> str:
        """Return why nothing may be written, as of now; raises what keeps us from looking."""
        with self._lock:
            self._found = self._look()
            self._looked_at = time.monotonic()
            return self._found

    def _look(self) -> str:
        try:
            definition = self._cluster.get(CUSTOMRESOURCEDEFINITIONS, _POD_CLIQUE_SETS)
        except NotFound:
            pass  # then there are no workloads either, and the watcher says so
        except Forbidden:
            return _MAY_NOT_LOOK.format("get customresourcedefinitions")
        else:
            if DEFINITION not in (definition["metadata"].get("annotations") or {}):
                return _FOREIGN_DEFINITION
        try:
            leases = self._cluster.list(LEASES, fields=f"metadata.name={GROVE_LEASE}").items
        except Forbidden:
            return _MAY_NOT_LOOK.format("list leases")
        before, self._renewed = self._renewed, {_place_of(lease): _renewal_of(lease) for lease in leases}
        alive = [place for place, renewed in self._renewed.items() if self._is_alive(renewed, before.get(place))]
        return _LEASE_RENEWED.format(alive[0]) if alive else ""

    def _is_alive(self, renewed: str, before: str | None) -> bool:
        """Say whether somebody holds a lease: by our clock, or because it moved on since we looked."""
        if not renewed:
            return False
        at = parse_time(renewed)
        return at is None or self._clock() - at < _FRESH_SECONDS or before not in (None, renewed)


def find_other_operator(cluster: Cluster) -> str:
    """Return why nothing may be written to a cluster; empty: we may. Raises what keeps us from finding out."""
    return _check_of(cluster).find()


def find_other_keeper(manifest: Mapping[str, Any]) -> str:
    """Return why nothing may be written to a PodCliqueSet and its parts; empty: we may."""
    return _KEPT_BY_GROVE if GROVE_FINALIZER in (manifest["metadata"].get("finalizers") or ()) else ""


@lru_cache(maxsize=64)
def _check_of(cluster: Cluster) -> OperatorCheck:
    """One check for all who use the same client."""
    return OperatorCheck(cluster)


def _place_of(lease: Mapping[str, Any]) -> str:
    metadata = lease["metadata"]
    return f"{metadata.get('namespace')}/{metadata['name']}"


def _renewal_of(lease: Mapping[str, Any]) -> str:
    """Return when a lease was renewed; nothing when nobody has held it, or it was given up."""
    spec = lease.get("spec") or {}
    return str(spec.get("renewTime") or "") if spec.get("holderIdentity") else ""
