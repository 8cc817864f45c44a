"""What a manifest may show: values that may be secrets are hidden, and put back when the manifest returns.

Before it: manifests and templates as they are stored. After it: pages, the API, diffs and the audit, none of which ever
sees what is hidden. A hidden value leaves a mark like `‹hidden 5f0c9e21›`: made with the key of this installation, the
same for the same value, so that a diff shows that it changed and nobody can guess from it what it was.

Hidden are literal values of environment variables, but for those that are well known to hold none; in texts what
follows a name like `--api-key` or `TOKEN=`, the user part of URLs, and what is a token by its form; whatever hangs by
a name that speaks of a secret. Names of Secrets stay: they are references. The invariants: anything at all can be
masked without an error, what is masked twice is masked once, and a mark is only put back in the place it was taken
from, so that nobody can move a value to where it is shown.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.utils.crypto import salted_hmac

from rollouts.engine.findings import Code, Finding

MARK: Final = re.compile("‹hidden [0-9a-f]{8}›")

_SALT: Final = "rollouts.masking"
_MARK_LENGTH: Final = 8
# Deeper than any manifest; what is further down is hidden whole.
_DEEPEST: Final = 64

# Shorter values are in any sentence by chance.
_SHORTEST_QUOTED: Final = 4

# Annotations in which tools keep a copy of the whole manifest.
_COPIES: Final = ("last-applied-configuration", "/last-applied", "/applied", "/last-applied-config")

# Environment variables whose values are settings and never secrets, as far as their names go on harmlessly.
_HARMLESS_PREFIXES: Final = (
    *("CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "NVSHMEM_", "ROCM_", "HIP_", "RCCL_", "UCX_", "FI_", "GLOO_"),
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "NUMEXPR_", "MPI_", "OMPI_", "PMIX_", "TORCH_", "PYTORCH_", "TRITON_"),
    *("TF_", "XLA_", "JAX_", "VLLM_", "SGLANG_", "TRTLLM_", "TLLM_", "DYN_", "RAY_", "GROVE_", "PYTHON", "LC_"),
)
_HARMLESS_NAMES: Final = frozenset(
    {
        *("PATH", "LD_LIBRARY_PATH", "HOME", "HOSTNAME", "LANG", "LANGUAGE", "TZ", "TERM", "SHELL", "TMPDIR", "DEBUG"),
        *("LOG_LEVEL", "LOGLEVEL", "LOG_FORMAT", "VERBOSE", "HOST", "PORT", "METRICS_PORT", "GOMAXPROCS", "GOMEMLIMIT"),
        *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "TOKENIZERS_PARALLELISM"),
        *("HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE"),
        *("MODEL", "MODEL_NAME", "MODEL_PATH", "MODEL_ID", "SERVED_MODEL_NAME"),
    }
)
_HARMLESS_HEADERS: Final = frozenset({"accept", "content-type", "host", "user-agent", "connection"})

# Words that speak of a secret wherever they stand in a name; `tokens` and `tokenizer` are something else.
_SECRET_WORDS: Final = frozenset(
    {
        *("token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pass", "pwd"),
        *("credential", "credentials", "creds", "auth", "authorization", "bearer", "apikey", "apikeys", "accesskey"),
        *("secretkey", "privatekey", "keytab", "cookie", "session", "signature", "dsn", "jwt", "oauth", "pin"),
        *("license", "licence", "webhook", "headers", "pat", "sas"),
    }
)
# Words that also end longer ones: authtoken, dbpassword.
_SECRET_ENDINGS: Final = ("token", "password", "passwd", "passphrase", "secret", "apikey", "accesskey", "secretkey")
# A key is one at the end of a name: an API key, but no key-value cache.
_LAST_SECRET_WORDS: Final = frozenset({"key", "keys"})
# Fields of Kubernetes that have such a name and hold references or settings.
_REFERENCES: Final = frozenset(
    {
        *("secret", "secretName", "secretRef", "secretKeyRef", "configMapKeyRef", "imagePullSecrets", "secrets"),
        *("automountServiceAccountToken", "serviceAccountToken", "nodePublishSecretRef", "key", "topologyKey"),
        *(
            "nodeStageSecretRef",
            "controllerPublishSecretRef",
            "matchLabelKeys",
            "sessionAffinity",
            "tokenExpirationSeconds",
        ),
    }
)

_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector"})

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Each pattern looks at a text once: it begins where a word begins, and gives back nothing of what it has taken (`++`).
# Up to the last @ before the path: passwords hold some, too. Another URL can only begin behind what was looked at.
_URL_USER: Final = re.compile(r"(?<=://)[^/\s'\"‹]+(?=@)")
# Tokens by their form: of model hubs, clouds, code hosts and chats; signed ones; private keys.
_TOKEN_FORMS: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}+|nvapi-[\w-]{16,}+|sk-[\w-]{16,}+|gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+"
    r"|glpat-[\w-]{16,}+|xox[abprs]-[\w-]{10,}+|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}+|grove_[\w-]{16,}+)"
    r"|(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"
    r"|-----BEGIN (?:(?!PRIVATE )[A-Z]++ )*+PRIVATE KEY-----"
    r".*?(?:-----END (?:(?!PRIVATE )[A-Z]++ )*+PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_SCHEME: Final = re.compile(r"(?i)(?<=\bbearer )[\w+/.~=-]{8,}+|(?<=\bbasic )[\w+/.~=-]{8,}+")
_SCHEMES: Final = frozenset({"bearer", "basic"})
# What identifies somebody in a header is all of it, whatever it is made of.
_HEADER: Final = re.compile(
    r"""(?i)\b(?:(?:proxy-)?authorization|(?:set-)?cookie):[ \t]*+"""
    r"""(?:(?:bearer|basic)[ \t]++)?+(?P<value>[^"'\r\n‹]++)"""
)
# A name and what is assigned to it, in an argument, a script, a header or a bit of JSON.
_ASSIGNMENT: Final = re.compile(
    r"""(?<![\w.-])-{0,2}+(?P<name>[A-Za-z_][\w.-]*+)["']?+(?:\s*+=\s*+|\s*+:\s++|:)"""
    r"""(?P<value>"[^"]*+"|'[^']*+'|[^\s"';&|,‹]++)"""
)
# A user with a password after it, as curl takes it.
_USER: Final = re.compile(r"(?:(?<=--user[ =])|(?<=-u ))(?P<quote>[\"']?)[^\s\"':‹]++:[^\s\"'‹]++(?P=quote)")
# What may be quoted without its user. Shorter ones may as well be ports.
_PASSWORD: Final = re.compile(r"[^\s:/@]++:(?P<password>[^\s/]{8,}+)")
_OPTION: Final = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*+)")
# An argument of its own that assigns: no shell reads it, so what is assigned goes on to its end.
_ASSIGNING: Final = re.compile(r"(?s:-{1,2}+(?P<option>[A-Za-z][\w.-]*+)=.++)|(?P<name>[A-Za-z_][\w.-]*+)=\S++")
_SPACED_OPTION: Final = re.compile(
    r"""(?:^|(?<=\s))--?(?P<name>[A-Za-z][\w.-]*+)\s++(?P<value>"[^"]*+"|'[^']*+'|[^\s"'‹-]\S*+)"""
)


def mask_manifest(obj: Any) -> Any:
    """Return a manifest, or a part of one, as it may be shown; nothing given is changed."""
    return _Masker().value(obj, "")


def unmask_manifest(obj: Any, live: Any) -> tuple[Any, list[Finding]]:
    """Return what somebody sends back with what was hidden put in again, and what cannot be put back.

    A mark stands for what the live object has in that very place, as long as it is hidden there again.
    """
    restorer = _Restorer()
    restored = restorer.value(obj, live, _Where("", ""))
    restorer.look_again(obj, mask_manifest(restored), _Where("", ""))
    return restored, restorer.findings


def mask_text(text: str, *manifests: Any) -> str:
    """Return a sentence as it may be shown: also without the values that are hidden in these manifests.

    An API server's words quote what they complain about.
    """
    return make_text_mask(*manifests)(text)


def make_text_mask(*manifests: Any) -> Callable[[str], str]:
    """Return the same for many sentences, so that the manifests are gone through once."""
    masker = _Masker()
    for manifest in manifests:
        masker.value(manifest, "")
    for secret in [secret for secret in masker.hidden.values() if isinstance(secret, str)]:
        masker.text(secret)  # hidden whole, and part of it may be quoted alone
    marks = {secret: mark for mark, secret in masker.hidden.items() if isinstance(secret, str)}
    marks |= {found["password"]: mark for secret, mark in marks.items() if (found := _PASSWORD.fullmatch(secret))}
    secrets = [secret for secret in sorted(marks, key=len, reverse=True) if len(secret) >= _SHORTEST_QUOTED]

    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, marks[secret])
        return masker.text(text)

    return mask


def is_secret_name(name: str) -> bool:
    """Return whether a name speaks of a secret.

    >>> [is_secret_name(name) for name in ("--api-key", "HF_TOKEN", "dbPassword", "X-Auth")]
    [True, True, True, True]
    >>> [is_secret_name(name) for name in ("--max-tokens", "--tokenizer", "--kv-cache-dtype", "ssl-keyfile", "")]
    [False, False, False, False, False]
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not _SECRET_WORDS.isdisjoint(words) or any(word.endswith(_SECRET_ENDINGS) for word in words):
        return True
    return bool(words) and words[-1] in _LAST_SECRET_WORDS


def _mark(secret: Any) -> str:
    text = secret if isinstance(secret, str) else orjson.dumps(secret, default=repr, option=_ANY).decode()
    digest = salted_hmac(_SALT, text.encode(errors="replace"), algorithm="sha256").hexdigest()
    return f"‹hidden {digest[:_MARK_LENGTH]}›"


_ANY: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS


@dataclass(slots=True)
class _Masker:
    """Masks one object, and notes what its marks stand for."""

    hidden: dict[str, Any] = field(default_factory=dict)  # by mark

    def value(self, value: Any, name: str, depth: int = 0) -> Any:
        """Mask what hangs by a name."""
        if depth > _DEEPEST:
            return self.hide(value)
        if name in _PAIRS and isinstance(value, list | tuple):
            return [self._named(entry, depth, _PAIRS[name]) for entry in value]
        if name not in _REFERENCES and is_secret_name(name) and not _is_plain(value):
            return self.hide(value)
        if isinstance(value, Mapping):
            return self._mapping(value, name, depth)
        if isinstance(value, list | tuple):
            return self._list(value, name, depth)
        return self.text(value) if isinstance(value, str) else value

    def hide(self, secret: Any) -> Any:
        """Return the mark of a value; nothing, and what is a mark already, is left."""
        if secret is None or secret == "" or (isinstance(secret, str) and MARK.fullmatch(secret)):
            return secret
        mark = _mark_of_anything(secret)
        self.hidden[mark] = secret
        return mark

    def text(self, text: str) -> str:
        """Hide what looks like a secret within a text."""
        text = _HEADER.sub(self._header, text)
        text = _SCHEME.sub(lambda found: self._part(found[0]), text)
        text = _ASSIGNMENT.sub(self._assignment, text)
        for pattern in (_URL_USER, _USER):
            text = pattern.sub(lambda found: self._part(found[0]), text)
        return _TOKEN_FORMS.sub(lambda found: self._part(found[0]), text)

    def _part(self, secret: str) -> str:
        return str(self.hide(secret))

    def _header(self, found: re.Match[str]) -> str:
        value = found["value"].rstrip()
        start, end = found.start("value") - found.start(), len(value)
        return f"{found[0][:start]}{self._part(value)}{found[0][start + end :]}"

    def _assignment(self, found: re.Match[str]) -> str:
        value = found["value"]
        if MARK.search(value) or value.lower() in _SCHEMES or not is_secret_name(found["name"]):
            return found[0]
        quote = value[0] if value[0] in "\"'" else ""
        inner = value[1:-1] if quote else value
        return f"{found[0][: found.start('value') - found.start()]}{quote}{self._part(inner)}{quote}"

    def _mapping(self, value: Mapping[Any, Any], name: str, depth: int) -> dict[Any, Any]:
        if name == "annotations":
            kept = {key: member for key, member in value.items() if not str(key).endswith(_COPIES)}
            return {key: self._annotation(str(key), member, depth) for key, member in kept.items()}
        if name in _LABELS:
            # Too short for secrets, and whoever reads a workload needs them.
            return {key: self.value(member, "", depth + 1) for key, member in value.items()}
        return {key: self.value(member, str(key), depth + 1) for key, member in value.items()}

    def _annotation(self, name: str, value: Any, depth: int) -> Any:
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")) and _mentions_secret(value):
            return self.hide(value)
        return self.value(value, name.rpartition("/")[2], depth + 1)

    def _list(self, value: list[Any] | tuple[Any, ...], name: str, depth: int) -> list[Any]:
        if name in ("args", "command"):
            return self._arguments(value, depth)
        return [self.value(entry, "", depth + 1) for entry in value]

    def _named(self, entry: Any, depth: int, is_harmless: Callable[[object], bool]) -> Any:
        """Mask a pair of name and value."""
        if not isinstance(entry, Mapping):
            return self.hide(entry)
        shown = {key: self.value(member, str(key), depth + 1) for key, member in entry.items() if key != "value"}
        if "value" not in entry:
            return shown
        value = entry["value"]
        harmless = isinstance(value, str) and is_harmless(entry.get("name"))
        masked = self.text(value) if harmless else self.hide(value)
        return {key: masked if key == "value" else shown[key] for key in entry}

    def _arguments(self, arguments: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        """Mask a command line: also the argument after an option that speaks of a secret."""
        masked: list[Any] = []
        before = ""  # the option just before, without its dashes
        for argument in arguments:
            if _is_told_by(before, argument):
                masked.append(self.hide(argument))
            elif isinstance(argument, str):
                masked.append(self._argument(argument))
            else:
                masked.append(self.value(argument, "", depth + 1))
            option = _OPTION.fullmatch(argument) if isinstance(argument, str) else None
            before = option["name"] if option else ""
        return masked

    def _argument(self, argument: str) -> str:
        whole = _ASSIGNING.fullmatch(argument)
        if whole and is_secret_name(whole["option"] or whole["name"]):
            name, _, value = argument.partition("=")
            return f"{name}={self._part(value)}"
        return _SPACED_OPTION.sub(self._assignment, self.text(argument))


def _is_told_by(option: str, argument: Any) -> bool:
    """Whether an argument is the secret that the option before it announces."""
    if not isinstance(argument, str):
        return is_secret_name(option)
    if option in ("u", "user"):
        return ":" in argument
    return is_secret_name(option) and not argument.startswith("--")


def _mark_of_anything(secret: Any) -> str:
    try:
        return _mark(secret)
    except (orjson.JSONEncodeError, RecursionError):
        return _mark(type(secret).__name__)


def _is_plain(value: Any) -> bool:
    """Whether a value is too plain to be a secret: nothing, a switch."""
    return value is None or isinstance(value, bool)


def _is_harmless_variable(name: object) -> bool:
    if not isinstance(name, str) or is_secret_name(name):
        return False
    return name in _HARMLESS_NAMES or name.startswith(_HARMLESS_PREFIXES)


def _is_harmless_header(name: object) -> bool:
    return isinstance(name, str) and name.lower() in _HARMLESS_HEADERS


_PAIRS: Final[Mapping[str, Callable[[object], bool]]] = {
    "env": _is_harmless_variable,
    "httpHeaders": _is_harmless_header,
}
"""Lists of names with values, and which of their values are shown."""


def _mentions_secret(text: str) -> bool:
    return '"env"' in text or any(is_secret_name(found) for found in re.findall(r'"([\w.-]+)"\s*:', text))


# ---- and back

_NOT_HERE: Final = (
    "This value is hidden, and the workload has another one here; write the value itself,"
    " or leave what was shown in the place where it was shown."
)
_MOVED: Final = (
    "This value is hidden, and would be shown like this; write the value itself,"
    " or leave what was shown in the place where it was shown."
)


@dataclass(frozen=True, slots=True)
class _Where:
    """A place in a manifest."""

    path: str
    name: str  # by which it hangs: that of the nearest field

    def field(self, key: object) -> "_Where":
        return _Where(f"{self.path}.{key}" if self.path else str(key), str(key))

    def entry(self, index: int) -> "_Where":
        return _Where(f"{self.path}[{index}]", "")


@dataclass(slots=True)
class _Restorer:
    """Puts hidden values back, place by place."""

    findings: list[Finding] = field(default_factory=list)
    put_back: dict[str, Any] = field(default_factory=dict)  # by mark

    def look_again(self, sent: Any, shown: Any, where: _Where, depth: int = 0) -> None:
        """Find what would be shown now that it was put back: a mark was moved within its place, or out of its URL."""
        if depth > _DEEPEST:
            return
        if isinstance(sent, Mapping) and isinstance(shown, Mapping):
            for key in sent.keys() & shown.keys():
                self.look_again(sent[key], shown[key], where.field(key), depth + 1)
        elif isinstance(sent, list | tuple) and isinstance(shown, list):
            for index, (one, other) in enumerate(zip(sent, shown, strict=False)):
                self.look_again(one, other, where.entry(index), depth + 1)
        elif isinstance(sent, str) and isinstance(shown, str) and self._gives_away(sent, shown):
            self.findings.append(Finding(where.path, Code.UNKNOWN_VALUE, _MOVED))

    def _gives_away(self, sent: str, shown: str) -> bool:
        plain = MARK.sub("", shown)
        return any(
            shown.count(mark) < sent.count(mark) and str(self.put_back[mark]) in plain
            for mark in set(MARK.findall(sent))
            if mark in self.put_back
        )

    def value(self, value: Any, live: Any, where: _Where, depth: int = 0) -> Any:
        """Put back what is hidden in a place, given what the live object has there."""
        if isinstance(value, str):
            return self._text(value, live, where)
        if depth > _DEEPEST:
            return value
        if isinstance(value, Mapping):
            return {key: self._member(key, member, live, where, depth) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return self._list(value, live, where, depth)
        return value

    def _member(self, key: Any, member: Any, live: Any, where: _Where, depth: int) -> Any:
        there = live.get(key) if isinstance(live, Mapping) else None
        place = where.field(key)
        if where.name == "annotations" and isinstance(member, str):
            return self._text(member, {key: there}, _Where(place.path, where.name))
        return self.value(member, there, place, depth + 1)

    def _list(self, value: Sequence[Any], live: Any, where: _Where, depth: int) -> list[Any]:
        there = list(live) if isinstance(live, list | tuple) else []
        by_name = {entry["name"]: entry for entry in there if _is_named(entry)}
        restored = []
        for index, entry in enumerate(value):
            former = there[index] if index < len(there) else None
            place = where.entry(index)
            if isinstance(entry, str):
                # Arguments are looked for in the whole command line: what is put in before one moves it on.
                restored.append(self._text(entry, there, _Where(place.path, where.name)))
                continue
            if _is_named(entry):
                former = by_name.get(entry["name"])
            if where.name in _PAIRS and isinstance(entry, Mapping):
                restored.append(self._pair(entry, former, _Where(place.path, where.name)))
            else:
                restored.append(self.value(entry, former, place, depth + 1))
        return restored

    def _pair(self, entry: Mapping[Any, Any], former: Any, where: _Where) -> dict[Any, Any]:
        there = [] if former is None else [former]
        return {
            key: self._text(member, there, _Where(f"{where.path}.{key}", where.name))
            if isinstance(member, str)
            else member
            for key, member in entry.items()
        }

    def _text(self, text: str, live: Any, where: _Where) -> Any:
        marks = set(MARK.findall(text))
        if not marks:
            return text
        hidden = _hidden_in(live, where.name)
        if not marks <= hidden.keys():
            self.findings.append(Finding(where.path, Code.UNKNOWN_VALUE, _NOT_HERE))
            return text
        self.put_back |= {mark: hidden[mark] for mark in marks}
        if text in hidden:
            return hidden[text]  # as it was, be it a number
        return MARK.sub(lambda found: str(hidden[found[0]]), text)


def _hidden_in(live: Any, name: str) -> dict[str, Any]:
    """Return what is hidden in one place of the live object, by its marks."""
    masker = _Masker()
    masker.value(live, name)
    return masker.hidden


def _is_named(entry: Any) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
