"""Pods that do not go: which of them are ticked on the page that lets them go."""

from functools import partial

import pytest
from django.test import Client

from rollouts.cluster.resources import PODS
from tests.services.stage import Stage
from tests.web.commands.filling import address, boxes_of, say
from tests.web.commands.waiting import bring_nodes_back, lose_node

pytestmark = pytest.mark.django_db


def test_only_pods_that_should_be_gone_by_now_are_ticked(
    operator: Client, deployed: Stage, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(bring_nodes_back, deployed.cluster))
    pods = deployed.loop.pods()[:2]
    for pod in pods:
        # A kubelet would soon be done with them, and then they have no time left.
        lose_node(deployed.cluster, pod)
    late, early = (pod["metadata"] for pod in pods)
    for pod, seconds in ((late, 0), (early, 300)):
        held = {"metadata": {"finalizers": ["tests.example/held"]}}
        deployed.cluster.patch_merge(PODS, pod["name"], held, namespace=deployed.namespace)
        deployed.cluster.delete(PODS, pod["name"], namespace=deployed.namespace, grace_seconds=seconds)
    try:
        deployed.observe()
        page = operator.get(address(deployed, "let-go"))
        assert boxes_of(page, "chosen") == {
            f"{late['name']}/{late['uid']}": "chosen",
            f"{early['name']}/{early['uid']}": "free",
        }
        assert "still within its grace period" in say(page)
    finally:
        for pod in (late, early):
            free = {"metadata": {"finalizers": None}}
            deployed.cluster.patch_merge(PODS, pod["name"], free, namespace=deployed.namespace)
