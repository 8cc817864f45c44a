"""The scope of an API token: read-only, namespaces, commands. A scope only narrows the permissions of the owner.

`services.tokens` validates the requested scope and stores it; `permissions.find_refusal` checks the scope before
every command. The invariant: a token that was created with another token lies within the scope of that token.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rollouts.accounts.commands import COMMANDS, Command
from rollouts.accounts.errors import make_cluster_not_found
from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.models import ApiToken
from rollouts.models.mirror import LABEL_LENGTH

# Given on pages only, never by token.
_PAGE_ONLY_COMMANDS: Final = frozenset(
    {Command.SIGN_IN, Command.SIGN_OUT, Command.CHANGE_PASSWORD, Command.END_SESSIONS}
)
# Commands that a scope may name.
SCOPE_COMMANDS: Final = tuple(command for command in Command if command not in _PAGE_ONLY_COMMANDS)
MAX_NAMESPACES: Final = 100
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

NamespaceKey = tuple[str, str]  # cluster and namespace; an empty name means any


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of a token. Without limits, the token has the permissions and grants of its owner."""

    read_only: bool = False
    namespaces: frozenset[NamespaceKey] | None = None  # None: no limit
    commands: frozenset[Command] | None = None  # None: no limit

    def allows_command(self, command: Command) -> bool:
        """Whether the scope includes a command."""
        return self.commands is None or command in self.commands

    def allows_namespace(self, cluster: str, namespace: str) -> bool:
        """Whether the scope includes a namespace; an empty name asks for all namespaces."""
        return self.namespaces is None or is_covered((cluster, namespace), self.namespaces)

    def narrowed_by(self, outer: "Scope") -> "Scope":
        """Return this scope, with the limits of the outer scope where it has none."""
        return Scope(
            self.read_only or outer.read_only,
            outer.namespaces if self.namespaces is None else self.namespaces,
            outer.commands if self.commands is None else self.commands,
        )

    def find_excess(self, outer: "Scope") -> tuple[Finding, ...]:
        """Return a finding for everything that this scope includes and the outer scope does not."""
        found = [("commands", one.value) for one in sorted(self.commands or ()) if not outer.allows_command(one)]
        excess = sorted(key for key in self.namespaces or () if not outer.allows_namespace(*key))
        found += [("namespaces", render_namespace(key)) for key in excess]
        return tuple(
            Finding(
                field, FindingCode.OUT_OF_RANGE, f"The token of this request does not include {name}. Leave it out."
            )
            for field, name in found
        )


@dataclass(frozen=True, slots=True)
class RequestedScope:
    """The scope that a caller asks for, unchecked; None means no limit."""

    read_only: bool = False
    namespaces: Sequence[Mapping[str, str]] | None = None  # each with cluster and namespace
    commands: Sequence[str] | None = None


NO_REQUESTED_SCOPE: Final = RequestedScope()


def is_covered(key: NamespaceKey, keys: Collection[NamespaceKey]) -> bool:
    """Whether one of several keys includes this one."""
    return any(cluster in ("", key[0]) and namespace in ("", key[1]) for cluster, namespace in keys)


def scope_of(token: ApiToken) -> Scope:
    """Return the scope of a stored token; commands that this version does not know are dropped."""
    namespaces, commands = token.namespaces, token.commands
    known = {command.value: command for command in SCOPE_COMMANDS}
    return Scope(
        token.read_only,
        None if namespaces is None else frozenset((one["cluster"], one["namespace"]) for one in namespaces),
        None if commands is None else frozenset(known[name] for name in commands if name in known),
    )


def render_scope_columns(scope: Scope) -> dict[str, Any]:
    """Return the columns of a token that store a scope."""
    keys = None if scope.namespaces is None else sorted(scope.namespaces)
    return {
        "read_only": scope.read_only,
        "namespaces": None
        if keys is None
        else [{"cluster": cluster, "namespace": namespace} for cluster, namespace in keys],
        "commands": None if scope.commands is None else sorted(command.value for command in scope.commands),
    }


def parse_scope(requested: RequestedScope, clusters: Collection[str]) -> tuple[Scope, tuple[Finding, ...]]:
    """Return the requested scope and the findings; with findings, the scope must not be used."""
    findings = [*_check_namespaces(requested.namespaces, clusters), *_check_commands(requested.commands)]
    if findings:
        return Scope(read_only=True), tuple(findings)
    namespaces, commands = requested.namespaces, requested.commands
    scope = Scope(
        requested.read_only,
        None if namespaces is None else frozenset((one["cluster"], one["namespace"]) for one in namespaces),
        None if commands is None else frozenset(COMMANDS[name] for name in commands),
    )
    return scope, ()


def parse_namespaces(text: str) -> list[dict[str, str]] | None:
    """Parse namespaces as people type them on the page, separated by commas or white space; None: no limit.

    >>> parse_namespaces("sandbox/team-a, east/*")
    [{'cluster': 'sandbox', 'namespace': 'team-a'}, {'cluster': 'east', 'namespace': ''}]
    """
    parts = [part.rpartition("/") for part in re.split(r"[\s,]+", text) if part]
    found = [{"cluster": one.replace("*", ""), "namespace": other.replace("*", "")} for one, _, other in parts]
    return found or None


def render_namespace(key: NamespaceKey) -> str:
    """Return a key as people write it.

    >>> render_namespace(("sandbox", ""))
    'sandbox/*'
    """
    return f"{key[0] or '*'}/{key[1] or '*'}"


def describe_scope(scope: Scope) -> list[str]:
    """Return the limits of a scope in words; an empty list means no limits."""
    limits = ["read only"] if scope.read_only else []
    if scope.namespaces is not None:
        limits.append("in " + ", ".join(map(render_namespace, sorted(scope.namespaces))))
    if scope.commands is not None:
        limits.append("only " + (", ".join(sorted(scope.commands)) or "commands that no longer exist"))
    return limits


def _check_namespaces(namespaces: Sequence[Mapping[str, str]] | None, clusters: Collection[str]) -> list[Finding]:
    if namespaces is None:
        return []
    if not namespaces:
        return [Finding("namespaces", FindingCode.TOO_FEW, "Name a namespace, or omit namespaces for no limit.")]
    if len(namespaces) > MAX_NAMESPACES:
        return [Finding("namespaces", FindingCode.TOO_MANY, f"Name at most {MAX_NAMESPACES} namespaces.")]
    findings = []
    for index, one in enumerate(namespaces):
        path, cluster, namespace = f"namespaces[{index}]", one["cluster"], one["namespace"]
        if cluster and cluster not in clusters:
            sentence = make_cluster_not_found(cluster, sorted(clusters)).sentence
            findings.append(Finding(f"{path}.cluster", FindingCode.UNKNOWN_VALUE, sentence))
        if namespace and (len(namespace) > LABEL_LENGTH or not _NAMESPACE.fullmatch(namespace)):
            sentence = (
                f"A namespace has at most {LABEL_LENGTH} lower-case letters, digits and hyphens. Empty means any."
            )
            findings.append(Finding(f"{path}.namespace", FindingCode.INVALID_NAME, sentence))
    return findings


def _check_commands(commands: Sequence[str] | None) -> list[Finding]:
    if commands is None:
        return []
    if not commands:
        return [
            Finding("commands", FindingCode.TOO_FEW, "Name a command, or use read_only for a token that only reads.")
        ]
    known = {command.value for command in SCOPE_COMMANDS}
    return [
        Finding(
            f"commands[{index}]",
            FindingCode.UNKNOWN_VALUE,
            f"This command does not exist. The commands are {', '.join(sorted(known))}.",
        )
        for index, name in enumerate(commands)
        if name not in known
    ]
