"""A simulated cluster that tests disturb: what users, autoscalers and nodes do, beside the writes of a plan."""

from rollouts.engine.model.actions import Kind
from rollouts.engine.model.values import fast_replace
from rollouts.engine.simulation.cluster import ClusterBehaviour, SimulatedCluster


class DisturbedCluster(SimulatedCluster):
    """A simulated cluster in which objects are deleted and scaled, pods fail, and nodes come and go."""

    def delete(self, kind: Kind, name: str) -> None:
        """Delete an object, as a user would."""
        self._delete(kind, name)
        self._schedule_pods()

    def exists(self, kind: Kind, name: str) -> bool:
        """Whether an object of this kind and name exists."""
        return name in self._tables[kind]

    def remove(self, pod: str) -> None:
        """Remove a pod at once, as a forced deletion does."""
        self._remove(Kind.POD, self.pods[pod])
        self._schedule_pods()

    def scale(self, kind: Kind, name: str, replicas: int) -> None:
        """Set the replicas of a live PodClique or PodCliqueScalingGroup, as an autoscaler would."""
        thing = self._tables[kind][name]
        generation = thing.generation + 1
        self._store(
            kind, fast_replace(thing, replicas=replicas, resource_version=self._next_version(), generation=generation)
        )

    def fail_pod(self, pod: str) -> None:
        """Let a pod fail, as an eviction or the shutdown of its node does: the pod stays, and its capacity is free."""
        thing = self.pods[pod]
        self._scheduler.release(pod)
        self._store(Kind.POD, fast_replace(thing, phase="Failed", ready=False))

    def set_behaviour(self, behaviour: ClusterBehaviour) -> None:
        """Change the behaviour from now on: nodes come and go, images break."""
        self._behaviour = behaviour
        self._scheduler.replace(behaviour.nodes)
        self._schedule_pods()
