"""Node manifests, read into what the scheduler and the kubelets see."""

from rollouts.sandbox.cluster.node_info import parse_node_info


def test_a_node_is_read_with_what_it_offers() -> None:
    node = parse_node_info(
        {
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "4", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        }
    )
    assert (node.cordoned, node.ready, node.has_devices, node.address) == (True, True, True, "10.0.0.1")
    assert node.allocatable == {"cpu": 4000, "nvidia.com/gpu": 8000}


def test_a_node_that_reported_nothing_offers_nothing_and_is_not_ready() -> None:
    node = parse_node_info({"metadata": {"name": "n1"}})
    assert (node.allocatable, node.ready, node.has_devices) == ({}, False, False)
