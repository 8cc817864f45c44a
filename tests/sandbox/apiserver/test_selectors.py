"""Label and field selectors."""

import pytest

from rollouts.sandbox.apiserver.errors import ApiError
from rollouts.sandbox.apiserver.registry import Registry
from rollouts.sandbox.apiserver.selectors import match_labels, parse_field_selector, parse_label_selector

LABELS = {"app": "web", "tier": "1", "grove.io/podclique": "a-0-b"}


@pytest.mark.parametrize(
    "text",
    [
        "app=web",
        "app==web",
        "app = web",
        "app!=db",
        "missing!=x",
        "app",
        "!missing",
        "app in (web,db)",
        "app notin (db)",
        "missing notin (db)",
        "grove.io/podclique=a-0-b,tier",
        "tier>0",
        "tier<2",
        "app=web,tier in (1, 2),!nope",
    ],
)
def test_a_selector_that_holds_selects(text: str) -> None:
    assert parse_label_selector(text)(LABELS)


@pytest.mark.parametrize(
    "text", ["app=db", "app!=web", "!app", "missing", "app in (db)", "app notin (web)", "tier>1", "app=web,tier=2"]
)
def test_a_selector_that_does_not_hold_does_not_select(text: str) -> None:
    assert not parse_label_selector(text)(LABELS)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b!c", "found '!', expected: ',' or 'end of string'"),
    ],
)
def test_a_selector_that_cannot_be_read_is_refused_in_the_servers_words(text: str, sentence: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_label_selector(text)
    assert (raised.value.code, raised.value.message) == (400, sentence)


def test_a_label_selector_object_selects_by_labels_and_expressions() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["1"]},
            {"key": "nope", "operator": "DoesNotExist"},
        ],
    }
    assert match_labels(selector, LABELS)
    assert not match_labels({"matchLabels": {"app": "db"}}, LABELS)
    assert match_labels({}, LABELS)
    assert not match_labels(None, LABELS)


def test_fields_select_by_equality(registry: Registry) -> None:
    obj = {
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"nodeName": "node-1", "schedulerName": "s"},
        "status": {"phase": "Running"},
    }
    pods = registry.kind("pods")
    assert parse_field_selector(pods, "spec.nodeName=node-1,status.phase!=Failed,metadata.name==a")(obj)
    assert not parse_field_selector(pods, "spec.nodeName=")(obj)
    assert parse_field_selector(pods, "status.podIP=,spec.schedulerName=s")(obj)


def test_events_select_by_what_they_are_about(registry: Registry) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "uid": "u"}, "reason": "R"}
    selects = parse_field_selector(registry.kind("events"), "involvedObject.name=a,involvedObject.uid=u,reason=R")
    assert selects(event)


@pytest.mark.parametrize(("plural", "group"), [("pods", ""), ("widgets", "test.grove.io")])
def test_a_field_the_kind_does_not_offer_is_refused(registry: Registry, plural: str, group: str) -> None:
    with pytest.raises(ApiError, match=r"field label not supported: spec\.size"):
        parse_field_selector(registry.kind(plural, group), "spec.size=small")
