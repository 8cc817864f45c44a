"""Walks over a manifest, or a part of one, and hides what may be a secret.

Before it: `secret_names` and `secret_patterns` recognise secrets. After it: readers see the masked copy, and
`unmasking` looks up the hidden values by their marks. The walk never changes its input and accepts any value: it hides
whatever is nested deeper than MAX_DEPTH.
"""

import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final

import orjson
from django.utils.crypto import salted_hmac

from rollouts.manifests.masking.secret_names import NAME_VALUE_LISTS, is_secret_field, is_secret_name
from rollouts.manifests.masking.secret_patterns import (
    HIDDEN,
    MARK,
    hide_in_argument,
    hide_in_prose,
    hide_in_text,
    is_harmless_value,
    is_password_client,
)

MAX_DEPTH: Final = 64
_SALT: Final = "rollouts.masking"
_MARK_LENGTH: Final = 8
_DIGEST_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS

# Annotations in which tools keep a copy of the whole manifest.
_MANIFEST_COPY_SUFFIXES: Final = ("last-applied-configuration", "/last-applied", "/applied", "/last-applied-config")
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})
_COMMANDS: Final = frozenset({"args", "command"})
# Field paths in change lists that name a command line, the value of a variable, or a part of one.
_FIELD_OF_COMMAND: Final = re.compile(r"(?:.*\.)?(?:args|command)(?:\[.*)?", re.DOTALL)
_FIELD_OF_VALUE: Final = re.compile(r"(?:.*\.)?env\[[^\]]*\](?:\.value)?", re.DOTALL)
_FIELD_OF_VARIABLES: Final = re.compile(r".*\.env", re.DOTALL)
_PATH_OF_PROBE: Final = "httpGet.path"
_OPTION: Final = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*+)")
# An argument of the form NAME=VALUE: no shell parses it, so the value extends to its end.
_ASSIGNING: Final = re.compile(r"(?s:-{1,2}+(?P<option>[A-Za-z][\w.-]*+)=.++)|(?P<name>[A-Za-z_][\w.-]*+)=\S++")

FieldPath = tuple[Any, str] | None
"""The path of a field: the path of its parent, and its name there. A list entry counts by its `name`, or by an empty
name: a value that moves within its list keeps its path."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What decides which values of a manifest are hidden from a reader."""

    # The workload for which marks carry a digest, so that equal values have equal marks; empty: marks without digest.
    workload: str = ""
    sees_commands: bool = False  # and the literal values of harmless environment variables
    # Copies of a manifest in annotations are hidden; without this they are left out. Whoever compares needs them.
    sees_copies: bool = False

    def with_copies(self) -> "Reader":
        """Return this reader, who sees that there are copies of a manifest in annotations."""
        return replace(self, sees_copies=True)


PUBLIC_READER: Final = Reader()
"""Readers who may not apply manifests to the workload, and content that all readers share."""
RECORD_READER: Final = Reader(sees_commands=True, sees_copies=True)
"""For stored records: commands and the names of all annotations are visible, marks carry no digest."""


def make_workload_reader(workload: str) -> Reader:
    """Return the reader who may apply manifests to a workload."""
    return Reader(workload, sees_commands=True)


@dataclass(slots=True)
class Masker:
    """Masks one object, and records what it hides."""

    reader: Reader
    hidden: dict[str, Any] = field(default_factory=dict)  # values by mark, if marks carry a digest
    secrets: list[str] = field(default_factory=list)  # texts hidden as secrets
    commands: list[str] = field(default_factory=list)  # texts hidden as parts of commands, though they look harmless
    _key: bytes = b""

    def mask_value(self, value: Any, name: str, field_path: FieldPath = None, depth: int = 0) -> Any:
        """Mask the value of a field."""
        if depth > MAX_DEPTH:
            return self.hide(value, field_path)
        if name in NAME_VALUE_LISTS and isinstance(value, list | tuple):
            return [self._mask_pair(entry, depth, NAME_VALUE_LISTS[name], field_path) for entry in value]
        if name and is_secret_field(name) and not _cannot_be_secret(value):
            return self.hide(value, field_path)
        if isinstance(value, str):
            return self._mask_text(value, field_path)
        if isinstance(value, Mapping):
            return self._mask_mapping(value, name, field_path, depth)
        return self._mask_list(value, name, field_path, depth) if isinstance(value, list | tuple) else value

    def hide(self, secret: Any, field_path: FieldPath) -> Any:
        """Return the mark of a value; an empty value or a mark is returned unchanged."""
        if secret is None or secret == "" or (isinstance(secret, str) and MARK.fullmatch(secret)):
            return secret
        if isinstance(secret, str):
            self.secrets.append(secret)
        if not self.reader.workload:
            return HIDDEN
        mark = f"‹hidden {self._compute_digest(secret, field_path)}›"
        self.hidden[mark] = secret
        return mark

    def _compute_digest(self, secret: Any, field_path: FieldPath) -> str:
        """Return a digest that is equal only for equal values in the same field of the same workload."""
        if not self._key:
            self._key = salted_hmac(_SALT, self.reader.workload, algorithm="sha256").digest()
        names = [render_text(secret)]
        while field_path is not None:
            field_path, name = field_path
            names.append(_mask_name(name))
        digest = hmac.digest(self._key, "\0".join(names).encode(errors="replace"), "sha256")
        return digest.hex()[:_MARK_LENGTH]

    def _mask_text(self, text: str, field_path: FieldPath) -> str:
        return hide_in_text(text, partial(self.hide, field_path=field_path))

    # ---- mappings

    def _mask_mapping(self, value: Mapping[Any, Any], name: str, field_path: FieldPath, depth: int) -> dict[Any, Any]:
        if name == "annotations":
            return {
                key: self._mask_annotation(str(key), member, (field_path, str(key)), depth)
                for key, member in value.items()
                if self.reader.sees_copies or not _holds_manifest(str(key))
            }
        if name in _LABELS:
            # Label values are too short for secrets, and readers need them to understand a workload.
            return {
                key: self.mask_value(member, "", (field_path, str(key)), depth + 1) for key, member in value.items()
            }
        if self.reader.sees_commands:
            return {
                key: self.mask_value(member, str(key), (field_path, str(key)), depth + 1)
                for key, member in value.items()
            }
        return {
            key: self._hide_query(member, (field_path, str(key)))
            if isinstance(member, str) and f"{name}.{key}".endswith(_PATH_OF_PROBE)
            else self._mask_public_member(str(key), member, (field_path, str(key)), depth)
            for key, member in value.items()
        }

    def _mask_public_member(self, name: str, value: Any, field_path: FieldPath, depth: int) -> Any:
        """Mask a member for readers who do not see commands; its name may be a field path of a change list."""
        if name in _COMMANDS and isinstance(value, str):
            return self._hide_command(value)
        if "." in name or "[" in name:
            if _FIELD_OF_COMMAND.fullmatch(name):
                return self._hide_command(value)
            if _FIELD_OF_VARIABLES.fullmatch(name):
                return self.mask_value(value, "env", field_path, depth + 1)
            if _FIELD_OF_VALUE.fullmatch(name):
                return self.mask_value([value], "env", field_path, depth + 1)[0]
        return self.mask_value(value, name, field_path, depth + 1)

    def _mask_annotation(self, name: str, value: Any, field_path: FieldPath, depth: int) -> Any:
        if _holds_manifest(name):
            return self.hide(value, field_path)
        if isinstance(value, str):
            if value.lstrip().startswith(("{", "[")) and _mentions_secret(value):
                return self.hide(value, field_path)
            if not is_secret_field(name.rpartition("/")[2]):
                return hide_in_prose(value, partial(self.hide, field_path=field_path))
        return self.mask_value(value, name.rpartition("/")[2], field_path, depth + 1)

    # ---- lists

    def _mask_list(self, value: list[Any] | tuple[Any, ...], name: str, field_path: FieldPath, depth: int) -> list[Any]:
        if name in _COMMANDS:
            return (
                self._mask_arguments(value, field_path, depth)
                if self.reader.sees_commands
                else self._hide_command(value)
            )
        return [self.mask_value(entry, "", (field_path, name_of(entry)), depth + 1) for entry in value]

    def _mask_pair(self, entry: Any, depth: int, is_harmless: Callable[[object], bool], field_path: FieldPath) -> Any:
        """Mask an entry with a name and a value."""
        if not isinstance(entry, Mapping):
            return self.hide(entry, (field_path, ""))
        below: FieldPath = (field_path, name_of(entry))
        shown = {
            key: self.mask_value(member, str(key), (below, str(key)), depth + 1)
            for key, member in entry.items()
            if key != "value"
        }
        if "value" not in entry:
            return shown
        value, at = entry["value"], (below, "value")
        is_shown = isinstance(value, str) and is_harmless(entry.get("name"))
        if is_shown and not self.reader.sees_commands and is_harmless is NAME_VALUE_LISTS["env"]:
            masked = self._hide_command(value)
        else:
            masked = self._mask_text(value, at) if is_shown else self.hide(value, at)
        return {key: masked if key == "value" else shown[key] for key in entry}

    def _hide_command(self, value: Any) -> Any:
        """Hide a command line, or a part of one, from readers who do not see commands."""
        parts = value if isinstance(value, list | tuple) else [value]
        texts = [part for part in parts if isinstance(part, str) and not MARK.fullmatch(part)]
        self.commands += texts
        if isinstance(value, list | tuple):
            return [HIDDEN] if value else []
        return HIDDEN if value is not None and value != "" else value

    def _hide_query(self, path: str, field_path: FieldPath) -> str:
        """Hide the query of the path of a probe, which may hold anything, like an argument."""
        path, sign, query = path.partition("?")
        return f"{self._mask_text(path, field_path)}{sign}{self._hide_command(query)}"

    def _mask_arguments(self, arguments: list[Any] | tuple[Any, ...], field_path: FieldPath, depth: int) -> list[Any]:
        """Mask a command line, including the argument after an option that indicates a secret."""
        masked: list[Any] = []
        previous_option = ""  # the option just before, without its dashes
        has_password_client = any(isinstance(one, str) and is_password_client(one) for one in arguments)
        hide = partial(self.hide, field_path=field_path)
        for argument in arguments:
            if _is_value_of_option(previous_option, argument, is_client=has_password_client):
                masked.append(self.hide(argument, field_path))
            elif isinstance(argument, str):
                masked.append(_mask_argument(argument, hide, is_client=has_password_client))
            else:
                masked.append(self.mask_value(argument, "", (field_path, ""), depth + 1))
            option = _OPTION.fullmatch(argument) if isinstance(argument, str) else None
            previous_option = option["name"] if option else ""
        return masked


def name_of(entry: Any) -> str:
    """Return the `name` of a list entry; empty if it has none."""
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""


def without_digests(value: Any) -> Any:
    """Return a masked value with the digests removed from its marks."""
    if isinstance(value, str):
        return MARK.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {key: without_digests(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [without_digests(member) for member in value]
    return value


def _mask_argument(argument: str, hide: Callable[[str], str], *, is_client: bool) -> str:
    whole = _ASSIGNING.fullmatch(argument)
    if whole and is_secret_name(whole["option"] or whole["name"]):
        name, _, value = argument.partition("=")
        return f"{name}={hide(value)}"
    return hide_in_argument(argument, hide, is_client=is_client)


def _is_value_of_option(option: str, argument: Any, *, is_client: bool) -> bool:
    """Whether an argument is the secret value of the option before it."""
    if not option:
        return False
    if not isinstance(argument, str):
        return is_secret_name(option)
    if option in ("u", "user"):
        return ":" in argument
    if option in ("p", "a"):
        return not argument.startswith("-") and (is_client or not is_harmless_value(argument))
    return is_secret_name(option) and not argument.startswith("--")


def _cannot_be_secret(value: Any) -> bool:
    """Whether a value is null or a boolean, which cannot be a secret."""
    return value is None or isinstance(value, bool)


def _holds_manifest(annotation: str) -> bool:
    """Whether tools keep a copy of a manifest in an annotation."""
    return annotation.endswith(_MANIFEST_COPY_SUFFIXES)


def _mentions_secret(text: str) -> bool:
    return '"env"' in text or any(is_secret_name(found) for found in re.findall(r'"([\w.-]+)"\s*:', text))


def render_text(secret: Any) -> str:
    """Return a string unchanged, and any other value as JSON."""
    if isinstance(secret, str):
        return secret
    try:
        return orjson.dumps(secret, default=repr, option=_DIGEST_OPTIONS).decode()
    except (orjson.JSONEncodeError, RecursionError):
        return type(secret).__name__


@lru_cache(maxsize=4096)
def _mask_name(name: str) -> str:
    """Return a name as all readers see it; parts of it may be hidden."""
    return MARK.sub(HIDDEN, hide_in_text(name, lambda _: HIDDEN))
