"""What is there, as values: the objects of one workload as the mirror or a test saw them.

`planner` compares them with the `workload`; whoever reads the cluster builds them. They hold what decisions need and
nothing else (a pod here is not a pod's manifest), so a workload of a thousand pods is a few thousand small values.

Words used everywhere: an object is *leaving* when it has a deletionTimestamp; a leaving pod counts neither as there nor
as available. *Available* is a pod that is Ready and not leaving, whatever its containers went through before.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a PodClique."""

    name: str
    uid: str
    clique: str  # name of its PodClique
    index: int  # its stable identity within the clique, from the hostname
    template_hash: str
    created: float  # seconds since the epoch
    node: str  # empty while not scheduled
    phase: str  # Pending, Running, ...
    ready: bool  # the Ready condition and nothing else
    leaving: bool
    gated: bool  # waits for its gang: our scheduling gate is still on it
    message: str = ""  # the scheduler's or kubelet's words on why it is not further

    @property
    def available(self) -> bool:
        """Whether it serves."""
        return self.ready and not self.leaving

    @property
    def scheduled(self) -> bool:
        """Whether it has a node and means to stay."""
        return bool(self.node) and not self.leaving
