"""Lists: selectors, pages, and the revision that a list shows."""

from collections.abc import Callable

import pytest

from rollouts.cluster import BadRequest, ClusterClient, Expired, Listing, Obj
from rollouts.cluster.resources import EVENTS, PODCLIQUES, PODS
from tests.builtin_resources import CONFIGMAPS
from tests.contract.conftest import Server
from tests.contract.manifests import config_map, gated_pod, pod_clique


def _names(listing: Listing) -> list[str]:
    return [item["metadata"]["name"] for item in listing.items]


def test_an_empty_list_has_a_resource_version(cluster: ClusterClient, namespace: str) -> None:
    for resource in (CONFIGMAPS, PODCLIQUES):
        listing = cluster.list(resource, namespace=namespace)
        assert list(listing.items) == []
        assert int(listing.resource_version) > 0


def test_a_list_is_sorted_by_name_and_holds_whole_objects(cluster: ClusterClient, namespace: str) -> None:
    created = {name: cluster.create(PODCLIQUES, pod_clique(namespace, name)) for name in ("b", "c", "a")}
    listing = cluster.list(PODCLIQUES, namespace=namespace)
    assert _names(listing) == ["a", "b", "c"]
    assert [*listing.items] == [created[name] for name in "abc"]
    assert int(listing.resource_version) >= int(created["a"]["metadata"]["resourceVersion"])


def test_items_of_built_in_kinds_are_told_with_their_kind(cluster: ClusterClient, namespace: str) -> None:
    created = cluster.create(CONFIGMAPS, config_map(namespace, "a"))
    assert [*cluster.list(CONFIGMAPS, namespace=namespace).items] == [created]


def test_a_list_of_all_namespaces_holds_every_namespace(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(CONFIGMAPS, config_map(namespace, "a", labels={"in": namespace}))
    cluster.create(CONFIGMAPS, config_map("default", f"a-{namespace}", labels={"in": namespace}))
    listing = cluster.list(CONFIGMAPS, labels=f"in={namespace}")
    assert {item["metadata"]["namespace"] for item in listing.items} == {namespace, "default"}


@pytest.fixture
def labelled(cluster: ClusterClient, namespace: str) -> Callable[[str], list[str]]:
    """Four objects; the function returns the names of those that a selector selects."""
    for name, labels in {
        "none": {},
        "red": {"colour": "red"},
        "blue": {"colour": "blue", "size": "2"},
        "odd": {"colour": "", "example.com/x": "1"},
    }.items():
        cluster.create(PODCLIQUES, pod_clique(namespace, name, labels=labels))
    return lambda selector: _names(cluster.list(PODCLIQUES, namespace=namespace, labels=selector))


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("colour=red", ["red"]),
        ("colour==red", ["red"]),
        ("colour!=red", ["blue", "none", "odd"]),
        ("colour", ["blue", "odd", "red"]),
        ("!colour", ["none"]),
        ("colour in (red, blue)", ["blue", "red"]),
        ("colour notin (red,blue)", ["none", "odd"]),
        ("colour,size", ["blue"]),
        ("colour!=red,size=2", ["blue"]),
        ("colour=", ["odd"]),
        ("example.com/x=1", ["odd"]),
        ("size>1", ["blue"]),
        ("size<2", []),
    ],
)
def test_a_label_selector_selects(labelled: Callable[[str], list[str]], selector: str, selected: list[str]) -> None:
    assert labelled(selector) == selected


@pytest.mark.parametrize("selector", ["a b", "=x", "colour in red", "a=b=c", "!", "colour in (red"])
def test_a_malformed_label_selector_is_refused(cluster: ClusterClient, namespace: str, selector: str) -> None:
    with pytest.raises(BadRequest):
        cluster.list(PODCLIQUES, namespace=namespace, labels=selector)


def test_a_field_selector_selects_by_name(cluster: ClusterClient, namespace: str) -> None:
    for name in ("a", "b"):
        cluster.create(PODCLIQUES, pod_clique(namespace, name))
        cluster.create(CONFIGMAPS, config_map(namespace, name))
    for resource in (PODCLIQUES, CONFIGMAPS):
        for selector, expected in {
            "metadata.name=a": ["a"],
            "metadata.name!=a": ["b"],
            f"metadata.name=a,metadata.namespace={namespace}": ["a"],
            "metadata.name=c": [],
        }.items():
            listing = cluster.list(resource, namespace=namespace, fields=selector)
            assert [name for name in _names(listing) if name in {"a", "b"}] == expected


def test_a_field_selector_selects_pods_by_node_and_phase(cluster: ClusterClient, namespace: str) -> None:
    for name in ("a", "b"):
        cluster.create(PODS, gated_pod(namespace, name))
    status = {"status": {"phase": "Failed"}}
    cluster.patch_merge(PODS, "b", status, namespace=namespace, subresource="status")
    for selector, expected in {
        "status.phase=Failed": ["b"],
        "status.phase!=Failed": ["a"],
        "spec.nodeName=": ["a", "b"],
        "spec.nodeName=nowhere": [],
        "status.phase=Pending,spec.nodeName=": ["a"],
    }.items():
        assert _names(cluster.list(PODS, namespace=namespace, fields=selector)) == expected


def _event(namespace: str, name: str, about: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": about, "namespace": namespace, "uid": f"uid-{about}"},
        "reason": "Because",
        "message": "told by a test",
        "type": "Normal",
    }


def test_a_field_selector_selects_events_by_their_object(cluster: ClusterClient, namespace: str) -> None:
    cluster.create(EVENTS, _event(namespace, "e1", "a"))
    cluster.create(EVENTS, _event(namespace, "e2", "b"))
    for selector, expected in {
        "involvedObject.name=a": ["e1"],
        "involvedObject.kind=Pod,involvedObject.uid=uid-b": ["e2"],
        "reason=Because,type=Normal": ["e1", "e2"],
        "type=Warning": [],
    }.items():
        assert _names(cluster.list(EVENTS, namespace=namespace, fields=selector)) == expected


@pytest.mark.parametrize("selector", ["spec.replicas=2", "metadata.labels=x"])
def test_a_field_selector_over_another_field_is_refused(cluster: ClusterClient, namespace: str, selector: str) -> None:
    with pytest.raises(BadRequest, match="field label not supported"):
        cluster.list(PODCLIQUES, namespace=namespace, fields=selector)


def test_pages_together_are_the_list(cluster: ClusterClient, namespace: str) -> None:
    for number in range(7):
        cluster.create(PODCLIQUES, pod_clique(namespace, f"n{number}"))
    pages = list(cluster.list_pages(PODCLIQUES, namespace=namespace, page_size=3))
    assert [[item["metadata"]["name"] for item in page.items] for page in pages] == [
        ["n0", "n1", "n2"],
        ["n3", "n4", "n5"],
        ["n6"],
    ]
    assert len({page.resource_version for page in pages}) == 1
    assert [page.continue_token is None for page in pages] == [False, False, True]


def test_a_page_that_holds_exactly_the_rest_is_the_last(cluster: ClusterClient, namespace: str) -> None:
    for name in "abcd":
        cluster.create(PODCLIQUES, pod_clique(namespace, name))
    pages = list(cluster.list_pages(PODCLIQUES, namespace=namespace, page_size=2))
    assert [len(page.items) for page in pages] == [2, 2]


def test_pages_go_with_selectors(cluster: ClusterClient, namespace: str) -> None:
    for number in range(6):
        cluster.create(PODCLIQUES, pod_clique(namespace, f"n{number}", labels={"odd": str(number % 2)}))
    pages = cluster.list_pages(PODCLIQUES, namespace=namespace, labels="odd=1", page_size=2)
    assert [item["metadata"]["name"] for page in pages for item in page.items] == ["n1", "n3", "n5"]


def test_all_pages_show_the_moment_of_the_first(cluster: ClusterClient, namespace: str) -> None:
    for name in ("a", "b", "c"):
        cluster.create(PODCLIQUES, pod_clique(namespace, name))
    first = cluster.list_page(PODCLIQUES, namespace=namespace, page_size=1)
    cluster.create(PODCLIQUES, pod_clique(namespace, "bb"))
    cluster.delete(PODCLIQUES, "c", namespace=namespace)
    cluster.patch_merge(PODCLIQUES, "b", {"spec": {"replicas": 9}}, namespace=namespace)
    rest = cluster.list_page(PODCLIQUES, namespace=namespace, continue_token=first.continue_token)
    assert [item["metadata"]["name"] for item in rest.items] == ["b", "c"]
    assert rest.items[0]["spec"]["replicas"] == 2
    assert rest.resource_version == first.resource_version


def test_a_page_after_the_server_forgot_the_moment_is_expired(
    cluster: ClusterClient, server: Server, namespace: str
) -> None:
    # Events, since kube-apiserver keeps recent revisions of the other kinds in its watch cache.
    for name in ("a", "b"):
        cluster.create(EVENTS, _event(namespace, name, "x"))
    first = cluster.list_page(EVENTS, namespace=namespace, page_size=1)
    cluster.create(EVENTS, _event(namespace, "c", "x"))
    server.forget()
    with pytest.raises(Expired) as refusal:
        cluster.list_page(EVENTS, namespace=namespace, page_size=1, continue_token=first.continue_token)
    assert refusal.value.reason == "Expired"


def test_a_continue_token_of_somebody_else_is_refused(cluster: ClusterClient, namespace: str) -> None:
    with pytest.raises(BadRequest, match="continue key is not valid"):
        cluster.list_page(PODCLIQUES, namespace=namespace, page_size=1, continue_token="bm9uc2Vuc2U")
