"""How the examples of the document are read and compared: a wrong answer must not pass."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.documented import difference_of_lines, difference_of_values, read_examples, run_examples

PAGE = """# Page

## First
```sh
word=hello
```

## Second
Says a word.
```sh
printf '{"word": "%s"}' "$word"
```
```json
{"word": "hello"}
```

## Third
```sh
false
```

## Fourth
```console
$ make run
```
```sh
echo never
```
"""


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": "…"}, {"a": [1, 2]}),
        ({"a": "chat-…"}, {"a": "chat-5xk2f"}),
        ([1, "…"], [1, 2, 3]),
        ([1, "…"], [1]),
        (["…", 2, "…"], [1, 2, 3]),
        ([1, 2], [1, 2]),
        ({"a": [{"b": None}]}, {"a": [{"b": None, "c": 1}]}),
    ],
)
def test_an_answer_may_hold_more_than_is_shown(shown: Any, real: Any) -> None:
    assert difference_of_values(shown, real) is None


@pytest.mark.parametrize(
    ("shown", "real", "where"),
    [
        ({"a": 1}, {"b": 1}, "$.a is missing"),
        ({"a": 1}, {"a": True}, "$.a is true"),
        ({"a": "chat-…"}, {"a": "other"}, "$.a is"),
        ([1], [1, 2], "$ has 2 items"),
        ([1, 2, "…"], [1], "$ has no such items: [1]"),
        (["…", 2], [2, 3], "$ has no such items: [2, 3]"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "$.a[0].b is 2"),
        ({"a": {}}, {"a": []}, "$.a is []"),
    ],
)
def test_an_answer_that_is_not_as_shown_is_found(shown: Any, real: Any, where: str) -> None:
    assert where in str(difference_of_values(shown, real))


def test_shown_lines_must_come_in_their_order() -> None:
    real = ["id: 1-0", "event: change", 'data: {"key": "a"}', ": heartbeat"]
    assert difference_of_lines(["event: change", "data: …a…"], real) is None
    assert difference_of_lines(["data: …", "…", ": heartbeat"], real) is None
    assert "'event: change'" in str(difference_of_lines(["data: …", "event: change"], real))


def test_examples_share_one_shell_and_end_with_the_first_that_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    examples = read_examples(page)
    assert [(one.title, one.language) for one in examples] == [
        ("01 First", ""),
        ("02 Second", "json"),
        ("03 Third", ""),
        ("04 Fourth", ""),
    ]
    ran = run_examples(examples, tmp_path, {"PATH": "/usr/bin:/bin"})
    assert ran[2].output == '{"word": "hello"}'
    assert [number for number, one in ran.items() if one.finished] == [1, 2]
    assert 4 not in ran
