"""The unified diff of two templates as YAML; each hunk names its cliques.

A template of a dozen cliques has hundreds of lines, and the three lines around a change rarely name the clique. Before
it: `revisions`, which renders and masks the templates.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias

_Opcodes: TypeAlias = Sequence[tuple[str, int, int, int, int]]

_CONTEXT: Final = 3  # lines around a change
_NAME: Final = re.compile(r"[- ] name: (.+)")


def render_diff(old: Sequence[str], new: Sequence[str], titles: tuple[str, str]) -> Iterator[str]:
    """Yield the lines of the diff; none for equal templates."""
    hunks = list(SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT))
    if hunks:
        yield f"--- {titles[0]}"
        yield f"+++ {titles[1]}"
    owners = find_cliques(old), find_cliques(new)
    for hunk in hunks:
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = hunk[0], hunk[-1]
        names = ", ".join(dict.fromkeys(_changed(hunk, *owners)))
        yield f"@@ -{_span(old_from, old_to)} +{_span(new_from, new_to)} @@ {names}".rstrip()
        yield from _lines(hunk, old, new)


def find_cliques(lines: Sequence[str]) -> list[str]:
    """Return the clique of each line of a template; empty: none.

    >>> find_cliques(["cliques:", "- name: a", "  spec: {}", "podCliqueScalingGroups:", "- name: g"])
    ['', 'a', 'a', '', '']
    """
    owners = [""] * len(lines)
    is_inside, began, name = False, 0, ""
    for number, line in enumerate(lines):
        if not line.startswith((" ", "-")):
            is_inside, name = line == "cliques:", ""
        elif line.startswith("-"):
            began, name = number, ""
        if is_inside and (found := _NAME.fullmatch(line)):
            # Keys are sorted, so lines before the name belong to the clique too.
            name = found[1]
            owners[began:number] = [name] * (number - began)
        owners[number] = name
    return owners


def _changed(hunk: _Opcodes, old_owners: Sequence[str], new_owners: Sequence[str]) -> Iterator[str]:
    for tag, old_from, old_to, new_from, new_to in hunk:
        if tag != "equal":
            yield from filter(None, [*old_owners[old_from:old_to], *new_owners[new_from:new_to]])


def _lines(hunk: _Opcodes, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for tag, old_from, old_to, new_from, new_to in hunk:
        if tag == "equal":
            yield from (f" {line}" for line in old[old_from:old_to])
        else:
            yield from (f"-{line}" for line in old[old_from:old_to])
            yield from (f"+{line}" for line in new[new_from:new_to])


def _span(start: int, stop: int) -> str:
    """Return a line range, counted from one, as in a unified diff."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
