"""Reads the examples out of docs/api.md, runs them as a reader would, and compares answers with those shown.

A fenced `sh` block is an example; a `json` or `text` block right behind it shows what the example prints. Nothing is
written down twice: the document is the only place where an example stands. What is shown may leave things out:

- an object may have more members than are shown, and "…" stands for any value;
- in a list "…" stands for any number of items, also none;
- of text the shown lines must come in this order, and "…" stands for anything within a line.

All examples are one shell script, as for a reader who goes through the page in one terminal: later ones use the
variables and functions of earlier ones.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "api.md"
ANYTHING: Final = "…"
_SECONDS: Final = 240
_FENCE: Final = re.compile(r"^```(\w*)$")


@dataclass(frozen=True, slots=True)
class Example:
    """A block to run, and the block that shows its answer."""

    number: int
    heading: str  # under which it stands
    script: str
    shown: str  # nothing: any answer will do
    language: str  # of what is shown: json or text

    @property
    def title(self) -> str:
        """What a failed test calls it."""
        return f"{self.number:02} {self.heading}"


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of an example."""

    output: str
    errors: str
    finished: bool


def read_examples(document: Path = DOCUMENT) -> list[Example]:
    """Return the examples of a document, in their order."""
    blocks = _blocks(document.read_text())
    examples: list[Example] = []
    for (language, heading, text), following in zip(blocks, [*blocks[1:], ("", "", "")], strict=True):
        if language == "sh":
            answered = following[0] in {"json", "text"} and following[1] == heading
            kind, _, shown = following if answered else ("", "", "")
            examples.append(Example(len(examples) + 1, heading, text, shown, kind))
    return examples


def read_blocks(language: str, document: Path = DOCUMENT) -> list[str]:
    """Return the blocks of a language, in their order."""
    return [text for kind, _, text in _blocks(document.read_text()) if kind == language]


def run_examples(examples: list[Example], folder: Path, environment: Mapping[str, str]) -> dict[int, Ran]:
    """Run them in one shell in an empty folder; those after one that fails are not run."""
    parts = ["set -eu", "cd work"]
    for example in examples:
        file = f"../{example.number}"
        parts += ["{", example.script, f"}} >{file}.out 2>{file}.err", f": >{file}.end"]
    (folder / "work").mkdir()
    script = folder / "examples.sh"
    script.write_text("\n".join(parts) + "\n")
    subprocess.run(["sh", str(script)], cwd=folder, env=environment, timeout=_SECONDS, check=False)
    return {example.number: _result(folder, example.number) for example in examples if _began(folder, example.number)}


def find_difference(example: Example, output: str) -> str | None:
    """Say where an answer is not as the document shows it."""
    if example.language == "json":
        try:
            answer = json.loads(output)
        except ValueError:
            return f"this is no JSON: {output}"
        return difference_of_values(json.loads(example.shown), answer)
    return difference_of_lines(example.shown.splitlines(), output.splitlines())


def difference_of_values(shown: Any, real: Any, path: str = "$") -> str | None:
    """Say where a JSON value lacks something that is shown."""
    if shown == ANYTHING:
        return None
    if isinstance(shown, dict) and isinstance(real, dict):
        return _difference_of_members(shown, real, path)
    if isinstance(shown, list) and isinstance(real, list):
        return _difference_of_items(shown, real, path)
    if isinstance(shown, str) and isinstance(real, str) and _matches(shown, real):
        return None
    same = shown == real and isinstance(shown, bool) == isinstance(real, bool)
    return None if same else f"{path} is {json.dumps(real, ensure_ascii=False)}"


def difference_of_lines(shown: list[str], real: list[str]) -> str | None:
    """Say which shown line does not come."""
    rest = iter(real)
    for line in shown:
        if line.strip() != ANYTHING and not any(_matches(line, one) for one in rest):
            return f"the line {line!r} does not come"
    return None


def _difference_of_members(shown: dict[str, Any], real: dict[str, Any], path: str) -> str | None:
    for name, value in shown.items():
        if name not in real:
            return f"{path}.{name} is missing; there are {', '.join(real)}"
        if found := difference_of_values(value, real[name], f"{path}.{name}"):
            return found
    return None


def _difference_of_items(shown: list[Any], real: list[Any], path: str) -> str | None:
    if ANYTHING not in shown:
        if len(shown) != len(real):
            return f"{path} has {len(real)} items: {json.dumps(real, ensure_ascii=False)}"
        pairs = enumerate(zip(shown, real, strict=True))
        return next(
            (found for index, (one, other) in pairs if (found := _difference_at(one, other, path, index))), None
        )
    return None if _has_run(shown, real) else f"{path} has no such items: {json.dumps(real, ensure_ascii=False)}"


def _difference_at(shown: Any, real: Any, path: str, index: int) -> str | None:
    return difference_of_values(shown, real, f"{path}[{index}]")


def _has_run(shown: list[Any], real: list[Any]) -> bool:
    """Whether items come as they are shown, with any number of others where "…" stands."""
    if not shown:
        return not real
    if shown[0] == ANYTHING:
        return any(_has_run(shown[1:], real[start:]) for start in range(len(real) + 1))
    return bool(real) and difference_of_values(shown[0], real[0]) is None and _has_run(shown[1:], real[1:])


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split(ANYTHING)), text, re.DOTALL) is not None


def _began(folder: Path, number: int) -> bool:
    return (folder / f"{number}.out").exists()


def _result(folder: Path, number: int) -> Ran:
    output, errors = ((folder / f"{number}.{kind}").read_text() for kind in ("out", "err"))
    return Ran(output, errors, finished=(folder / f"{number}.end").exists())


def _blocks(text: str) -> list[tuple[str, str, str]]:
    """Return the fenced blocks as language, heading above, and text."""
    blocks, heading, language, lines = [], "", None, list[str]()
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if language is not None:
            if line == "```":
                blocks.append((language, heading, "\n".join(lines)))
                language = None
            else:
                lines.append(line)
        elif fence:
            language, lines = fence[1], []
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return blocks
