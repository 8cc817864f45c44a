"""A small set for tests of passes: how it is made and changed, and what has become of it."""

from typing import Any, Final

import pytest

from rollouts.cluster import ClusterClient, Obj, Resource
from rollouts.cluster.resources import EVENTS, PODCLIQUESETS
from rollouts.engine.model import names
from rollouts.models import Rollout
from tests.controller.loop import Loop
from tests.engine.manifests import small

ONE_REPLICA: Final = {"spec.replicas": 1, "spec.template.podCliqueScalingGroups.0.replicas": 1}
PODS_OF_ONE: Final = 3 + 3


def make(cluster: ClusterClient, namespace: str, edits: dict[str, Any] | None = None) -> Loop:
    """Create a small set and return the loop over it."""
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": namespace, **ONE_REPLICA, **(edits or {})}))
    return Loop(cluster, namespace, "chat")


@pytest.fixture
def loop(cluster: ClusterClient, namespace: str) -> Loop:
    """A small set that is deployed."""
    deployed = make(cluster, namespace)
    deployed.run(deployed.is_complete)
    return deployed


def change_image(loop: Loop, image: str) -> None:
    """Give the frontend another image."""
    cliques = loop.stored()["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = image
    change = {"spec": {"template": {"cliques": cliques}}}
    loop.cluster.patch_merge(PODCLIQUESETS, loop.name, change, namespace=loop.namespace)


def images(loop: Loop) -> list[str]:
    """Return the images of the frontend's pods."""
    mine = [pod for pod in loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith("frontend")]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in mine)


def is_updated(loop: Loop, image: str) -> bool:
    """Return whether an update to an image has ended."""
    return set(images(loop)) == {image} and loop.is_complete()


def outcomes() -> list[str]:
    """Return the outcomes of the rollouts, oldest first."""
    return [row.outcome for row in Rollout.objects.order_by("started", "id")]


def told(loop: Loop) -> list[str]:
    """Return the reasons of the Events about the set, in their order."""
    events = loop.cluster.list(EVENTS, namespace=loop.namespace).items
    mine = [event for event in events if event["involvedObject"].get("kind") == "PodCliqueSet"]
    return [event["reason"] for event in sorted(mine, key=lambda one: int(one["metadata"]["resourceVersion"]))]


def listed(loop: Loop, resource: Resource) -> list[Obj]:
    """Return the objects of a kind in the namespace of the loop."""
    return list(loop.cluster.list(resource, namespace=loop.namespace).items)
