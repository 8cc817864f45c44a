"""Whatever a manifest is made of, it can be masked, in time that grows with its size, and comes back as it was."""

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollouts.manifests.masking import PUBLIC_READER, RECORD_READER, Reader
from tests.manifests.masking.planted import PLANTED, READERS, SECRET, mask_manifest, unmask_manifest
from tests.thoroughness import examples


def test_nothing_given_is_changed() -> None:
    manifests = copy.deepcopy(PLANTED)
    mask_manifest(manifests)
    unmask_manifest(mask_manifest(manifests), manifests)
    assert manifests == PLANTED


_NAMES = st.sampled_from(
    [
        "env",
        "a.env[0]",
        "x.args[1]",
        "name",
        "value",
        "args",
        "command",
        "annotations",
        "httpHeaders",
        "token",
        "labels",
        "spec",
        "a/b",
        "key",
    ]
)
_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            *("--token", "-u", "a:b", "TOKEN=x", "http://u:p@h", "‹hidden 00000000›", "‹hidden", '{"password": "x"}'),
            *("Bearer abcdefghij", "a=‹hidden 12345678›", "--secret=", "key=\"a'b", "Authorization: Basic abcdefgh"),
            *("-p", "-a", "mysql", "-px", "mysql -p x", "export A=b C=d", "a:b@c/d", "//a:b@c", "the password is x1"),
        ]
    ),
    st.text(alphabet="-=: \"'‹›@/abp_TOKENkey\n", max_size=30),
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS)
_ANYTHING = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_NAMES, st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=25,
)


@given(_ANYTHING, st.sampled_from(list(READERS.values())))
@settings(max_examples=examples(300), deadline=None)
@example({"env": [None, 1, [], {"name": 3, "value": {"a": 1}}]}, PUBLIC_READER)
@example({"args": [1, None, "--token", 5, ["x"], "--token"]}, RECORD_READER)
@example({"annotations": [1], "labels": "x", "httpHeaders": {"a": 1}}, RECORD_READER)
def test_anything_can_be_masked_and_masking_twice_is_masking_once(value: Any, reader: Reader) -> None:
    masked = mask_manifest(value, reader)
    assert mask_manifest(masked, reader) == masked


@given(_ANYTHING)
@settings(max_examples=examples(300), deadline=None)
@example([{"name": "TOKEN=0"}])
@example({"env": [{"env": [False]}]})
def test_what_was_shown_comes_back_as_it_was(value: Any) -> None:
    if "‹hidden" in str(value):
        return  # a mark of nobody's
    restored, findings = unmask_manifest(mask_manifest(value), value)
    assert (restored, findings) == (value, [])


@pytest.mark.parametrize(
    "odd", [object(), {1: "x", None: "y"}, {"env": ({"name": "A", "value": b"x"},)}, {"token": {3}}]
)
def test_what_no_manifest_holds_is_masked_too(odd: Any) -> None:
    mask_manifest(odd)
    unmask_manifest(odd, odd)
    unmask_manifest(mask_manifest(odd), None)


def test_what_is_too_deep_is_hidden_whole() -> None:
    deep: Any = {"value": SECRET}
    for _ in range(3000):
        deep = {"a": deep}
    masked = mask_manifest(deep)
    assert SECRET not in str(masked)
    unmask_manifest(masked, deep)


@pytest.mark.parametrize(
    "part",
    [
        *("x", "a-", "--token ", "http://", "eyJaaaaaaaa-", 'a="', "a='\"", '"a":', "-u a:", " ", "-----BEGIN "),
        *("TOKEN=", "bearer ", "://", "-", "a: ", "'", "sk-", "‹hidden ", '"', "://a", "@", "cookie:", "cookie: a\n"),
        *("-p ", "-p", "mysql -p", "export A=", "export ", "declare -x ", "a:b@", "//a:", "password is ", "'\"", "a:"),
    ],
)
def test_a_long_text_takes_no_longer_than_it_is_long(part: str) -> None:
    # Quadratic patterns would take minutes here, and be ended by the time limit of the tests.
    text = part * (300_000 // len(part))
    manifest = {"text": text, "args": [text], "annotations": {"a": text}}
    for reader in READERS.values():
        mask_manifest(manifest, reader)
