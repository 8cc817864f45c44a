r"""Finds parts of a text that look like a secret, in time linear in the length of the text.

`masker` and `messages` call it for arguments, scripts, annotations and messages. A function of the caller replaces each
part that is found. Each pattern runs only if the text contains a character that all of its matches need, since most
texts are plain names.

    --api-key=X   TOKEN: X   Authorization: X   bearer X   -u user:X   //user:X@host   user:X@registry/image
    export NAME=X   redis-cli -a X   mysql -pX   sshpass -p X   and tokens by their form

The invariant: quantifiers are possessive (`++`) wherever backtracking could be slow, and no match contains a mark.
"""

import re
from collections.abc import Callable
from typing import Final

from rollouts.manifests.masking.secret_names import is_harmless_variable, is_secret_name

HIDDEN: Final = "‹hidden›"
MARK: Final = re.compile("‹hidden(?: [0-9a-f]{8})?›")

Hide = Callable[[str], str]

_SHORTEST_TOKEN: Final = 16

# Up to the last @ before the path, because passwords may contain @.
_URL_USER: Final = re.compile(r"(?:(?<=://)|(?<=//)(?=[^/\s'\"@‹]*+[:@]))[^/\s'\"‹]+(?=@)")
# As in image references: a registry and a path follow, and no digest.
_REGISTRY_USER: Final = re.compile(r"(?<![\w.:@/%-])[\w.-]++:[^\s/@'\"‹]++(?=@(?!sha[0-9]+:)[\w.-]++(?::[0-9]++)?+/)")
# Tokens by their form: of model hubs, clouds, code hosts and chats; JWTs; private keys.
_TOKEN_FORMS: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}+|nvapi-[\w-]{16,}+|sk-[\w-]{16,}+|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+"
    r"|glpat-[\w-]{16,}+|xox[abprs]-[\w-]{10,}+|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}+|grove_[\w-]{16,}+)"
    r"|(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"
    r"|-----BEGIN (?:(?!PRIVATE )[A-Z]++ )*+PRIVATE KEY-----"
    r".*?(?:-----END (?:(?!PRIVATE )[A-Z]++ )*+PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_SCHEME_CREDENTIALS: Final = re.compile(r"(?i)(?<=\bbearer )[\w+/.~=-]{8,}+|(?<=\bbasic )[\w+/.~=-]{8,}+")
_SCHEMES: Final = frozenset({"bearer", "basic"})
# The whole value of these headers is a credential.
_SECRET_HEADER: Final = re.compile(
    r"""(?i)\b(?:(?:proxy-)?authorization|(?:set-)?cookie):[ \t]*+"""
    r"""(?:(?:bearer|basic)[ \t]++)?+(?P<value>[^"'\r\n‹]++)"""
)
# A name and its value, in an argument, a script, a header or a piece of JSON.
_ASSIGNMENT: Final = re.compile(
    r"""(?<![\w.-])-{0,2}+(?P<name>[A-Za-z_][\w.-]*+)["']?+(?:\s*+=\s*+|\s*+:\s++|:)"""
    r"""(?P<value>"[^"]*+"|'[^']*+'|[^\s"';&|,‹]++)"""
)
# `user:password`, as curl takes it.
_CURL_USER: Final = re.compile(r"(?:(?<=--user[ =])|(?<=-u ))(?P<quote>[\"']?)[^\s\"':‹]++:[^\s\"'‹]++(?P=quote)")
_SPACED_OPTION: Final = re.compile(
    r"""(?:^|(?<=\s))--?(?P<name>[A-Za-z][\w.-]*+)\s++(?P<value>"[^"]*+"|'[^']*+'|[^\s"'‹-]\S*+)"""
)
# One command of a shell script, including quoted text.
_SHELL_COMMAND: Final = re.compile(r"""(?:"[^"]*+"|'[^']*+'|[^;&|\n"']++|["'])++""")
_EXPORT: Final = re.compile(r"\b(?:export|declare\s++-x)\s")
_VARIABLE: Final = re.compile(
    r"""(?<![\w$./-])(?P<name>[A-Za-z_]\w*+)=(?P<value>"[^"]*+"|'[^']*+'|[^\s"';&|‹]++)(?!‹)"""
)
_REFERENCE: Final = re.compile(r"""["']?\$(?:\w++|\{\w++\})["']?""")
# These programs take a password by -p X, -pX or -a X.
_PASSWORD_CLIENT: Final = re.compile(
    r"(?<![\w.-])(?:mysql\w*|mariadb[\w-]*|sshpass|redis-cli|valkey-cli|mongo\w*|docker\s+login|podman\s+login)(?![\w.-])"
)
# For these programs -p and -a mean something else.
_OTHER_PROGRAM: Final = re.compile(r"\s*(?:\S*/)?(?:mkdir|install|cp|rsync|ssh|scp|tar|ls|ps|nc|test|read|set)\s")
_SHORT_OPTION: Final = re.compile(
    r"""(?<![^\s"'(])-(?P<flag>[pa])(?:(?P<gap>\s++)(?![-‹])|(?=[^\s"'‹-]))(?P<value>"[^"]*+"|'[^']*+'|[^\s"'‹]++)"""
)
_HARMLESS_VALUE: Final = re.compile(r"[0-9]{1,5}(?::[0-9]{1,5})*(?:/(?:tcp|udp))?|(?:\.{0,2}|~)/.*|[$({].*", re.DOTALL)
# An option with a long name: -port, -path=/x.
_WORD: Final = re.compile(r"[a-z][a-z0-9.-]*+(?:=.*)?", re.DOTALL)
_PROSE_ASSIGNMENT: Final = re.compile(
    r"""(?i)\b(?:password|passwd|passphrase|passcode|pwd|secret|token|credentials?|(?:api|access)[ _-]?key)"""
    r"""\s++(?:is|was|are)\s++["']?(?P<value>[^\s"'‹]++)"""
)
_PLAIN_WORD: Final = re.compile(r"[a-z]{1,12}+[.,;!?]*+")


def hide_in_text(text: str, hide: Hide) -> str:
    """Hide everything in a text that looks like a secret."""
    if ":" in text or "=" in text:
        text = _SECRET_HEADER.sub(lambda found: _hide_value(found, hide, found["value"].rstrip()), text)
        text = _ASSIGNMENT.sub(lambda found: _hide_assigned(found, hide), text)
        text = _CURL_USER.sub(lambda found: hide(found[0]), text)
    if "@" in text:
        text = _URL_USER.sub(lambda found: hide(found[0]), text)
        text = _REGISTRY_USER.sub(lambda found: hide(found[0]), text)
    if " " in text:
        text = _SCHEME_CREDENTIALS.sub(lambda found: hide(found[0]), text)
    if "export" in text or "declare" in text:
        text = _SHELL_COMMAND.sub(lambda found: _hide_exported(found[0], hide), text)
    if "-p" in text or "-a" in text:
        text = _SHELL_COMMAND.sub(lambda found: _hide_short_options(found[0], hide), text)
    return _TOKEN_FORMS.sub(lambda found: hide(found[0]), text) if len(text) >= _SHORTEST_TOKEN else text


def hide_in_argument(argument: str, hide: Hide, *, is_client: bool) -> str:
    """Hide everything in an argument, which may be a whole script, that looks like a secret."""
    text = _SPACED_OPTION.sub(lambda found: _hide_assigned(found, hide), hide_in_text(argument, hide))
    if is_client and "-p" in text:
        text = _SHORT_OPTION.sub(lambda found: _hide_short(found, hide, is_client=True), text)
    return text


def hide_in_prose(text: str, hide: Hide) -> str:
    """Hide everything in prose that looks like a secret, including `the password is X`."""

    def hide_word(found: re.Match[str]) -> str:
        value = found["value"]
        return found[0] if _PLAIN_WORD.fullmatch(value) else _hide_value(found, hide, value.rstrip(".,;"))

    text = hide_in_text(text, hide)
    return _PROSE_ASSIGNMENT.sub(hide_word, text) if " " in text else text


def is_password_client(program: str) -> bool:
    """Whether a program takes a password by a short option."""
    return _PASSWORD_CLIENT.fullmatch(program.rpartition("/")[2]) is not None


def is_harmless_value(value: str) -> bool:
    """Whether the value of -p or -a is a port, a path or a variable reference."""
    return _HARMLESS_VALUE.fullmatch(value) is not None


def _hide_value(found: re.Match[str], hide: Hide, value: str) -> str:
    start = found.start("value") - found.start()
    return f"{found[0][:start]}{hide(value)}{found[0][start + len(value) :]}"


def _hide_quoted(found: re.Match[str], hide: Hide) -> str:
    """Hide the value of a match within its quotes."""
    value = found["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value[1:-1] if quote else value
    return f"{found[0][: found.start('value') - found.start()]}{quote}{hide(inner)}{quote}"


def _hide_assigned(found: re.Match[str], hide: Hide) -> str:
    value = found["value"]
    if MARK.search(value) or value.lower() in _SCHEMES or not is_secret_name(found["name"]):
        return found[0]
    return _hide_quoted(found, hide)


def _hide_exported(command: str, hide: Hide) -> str:
    """Hide exported shell variables, by the same rule as environment variables of a container."""
    if not (beginning := _EXPORT.search(command)):
        return command

    def hide_variable(found: re.Match[str]) -> str:
        value = found["value"]
        is_shown = MARK.search(value) or _REFERENCE.fullmatch(value) or is_harmless_variable(found["name"])
        return found[0] if is_shown else _hide_quoted(found, hide)

    return command[: beginning.end()] + _VARIABLE.sub(hide_variable, command[beginning.end() :])


def _hide_short_options(command: str, hide: Hide) -> str:
    if _OTHER_PROGRAM.match(command):
        return command
    known = _PASSWORD_CLIENT.search(command) is not None
    return _SHORT_OPTION.sub(lambda found: _hide_short(found, hide, is_client=known), command)


def _hide_short(found: re.Match[str], hide: Hide, *, is_client: bool) -> str:
    value = found["value"]
    if MARK.search(value):
        return found[0]
    if not is_client:
        is_joined = found["gap"] is None
        if is_harmless_value(value) or (is_joined and (found["flag"] == "a" or _WORD.fullmatch(value))):
            return found[0]
    return _hide_quoted(found, hide)
