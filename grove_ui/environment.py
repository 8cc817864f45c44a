"""The process environment, read once into values.

Everything that can be configured is an environment variable with a working default; this module is the whole list.
It comes before `settings` and the supervisor, which both build on it, and knows nothing of Django. A variable that
cannot be read ends in one sentence that names it and the way out, and nothing is started.
"""

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rollouts.runtime.private_folder import NotPrivateError, ensure_private

BASE_DIR: Final = Path(__file__).resolve().parent.parent

CLUSTER_KINDS: Final = ("sandbox", "kubeconfig", "in-cluster")
ROLES: Final = ("viewer", "operator", "admin")
POD_SECURITY_LEVELS: Final = ("baseline", "restricted", "privileged")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})
_HIGHEST_PORT: Final = 65535
_MIN_TOKEN_LENGTH: Final = 20
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_DATABASE_KINDS: Final = frozenset({"postgresql", "postgres", "sqlite"})
_MAX_DAYS: Final = 36_500
_PERIODS: Final = {"s": 1, "min": 60, "h": 3600}

Network = IPv4Network | IPv6Network


class ConfigurationError(Exception):
    """A setting that cannot be used; the text is the sentence to show."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many seconds, at once or spread out."""

    count: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Oidc:
    """An identity provider that speaks OpenID Connect, and what its groups are here."""

    issuer: str  # its address as it stands in its tokens, without the path of the discovery document
    client_id: str
    client_secret: str = field(repr=False)
    name: str  # what the button on the sign-in page calls it
    scopes: str
    username_claim: str
    groups_claim: str
    # Roles by group of the provider, e.g. {"platform": "admin"}; "*" is everybody.
    roles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says, parsed."""

    # Where web listens. Loopback unless told otherwise: the product asks for a login but ships no TLS of its own.
    host: str
    port: int
    sandbox_port: int
    # Holds the SQLite database, Redis data, the sandbox's state and the generated secret key.
    data_dir: Path
    # Where the clusters to steer come from: one or several of "sandbox", "kubeconfig" and "in-cluster".
    clusters: tuple[str, ...]
    # With "kubeconfig": the file (None: the user's own) and its contexts, a cluster each (none: the current one).
    kubeconfig: Path | None
    kube_contexts: tuple[str, ...]
    # None: SQLite and the local Redis server under `data_dir`.
    database_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    allowed_hosts: tuple[str, ...]
    # Origins of forms sent from behind a proxy that changes the host, e.g. "https://grove.example.com".
    trusted_origins: tuple[str, ...]
    # Whether users reach us by HTTPS: secure cookies, HSTS and the redirect to it.
    https: bool
    # With HTTPS, what browsers remember for a year also counts for names below ours, and may be built into them.
    hsts_include_subdomains: bool
    hsts_preload: bool
    debug: bool
    admin_user: str
    admin_password: str | None = field(repr=False)
    # Becomes an API token of the first account; None: it has none from here.
    admin_token: str | None = field(repr=False)
    # Nobody may command anything; the controller goes on keeping workloads as they are declared.
    read_only: bool
    # Nothing is written to any cluster, neither by the controller nor by a command.
    observe: bool
    # What pods may ask of their node, in namespaces that have no level of their own (docs/accounts.md).
    pod_security_level: str
    # From whom X-Forwarded-For is believed; nobody unless told otherwise, since anybody can write that header.
    trusted_proxies: tuple[Network, ...]
    # How often somebody signed in may ask, a stranger may, and how often a password may be wrong; None: no limit.
    api_rate: Rate | None
    stranger_rate: Rate | None
    sign_in_rate: Rate | None
    # The longest life of an API token in days; None: any, also for good.
    token_max_days: int | None
    # So many days after the last sign-in of a single sign-on account its tokens sleep; None: never.
    oidc_token_days: int | None
    # Connections to a web process at once; beyond, those that wait for their clients are closed.
    connection_limit: int
    # Live pages and feeds that an account may have open at once in a web process; None: no limit.
    stream_limit: int | None
    # Single sign-on; None: names and passwords only.
    oidc: Oidc | None
    # Celery's process pool.
    worker_processes: int
    # The longest that a worker keeps a workload in one go; the limits of a pass are fractions of it.
    reconcile_lease_seconds: int
    # Lets a Prometheus read /metrics without a session; None: only those who are signed in.
    metrics_token: str | None = field(repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the web process."""
        return self.host in _LOOPBACK


def parse_environment(variables: Mapping[str, str]) -> Environment:
    """Read the environment into values, or raise ConfigurationError naming the variable."""
    kubeconfig = variables.get("KUBECONFIG") or None
    host = variables.get("HOST") or "127.0.0.1"
    return Environment(
        host=host,
        port=_parse_port(variables, "PORT", 8000),
        sandbox_port=_parse_port(variables, "SANDBOX_PORT", 8001),
        data_dir=Path(variables.get("DATA_DIR") or BASE_DIR / "var").expanduser().resolve(),
        clusters=_parse_choices(variables, "CLUSTER", CLUSTER_KINDS),
        kubeconfig=Path(kubeconfig).expanduser() if kubeconfig else None,
        kube_contexts=_parse_list(variables, "KUBE_CONTEXT", ()),
        database_url=_parse_database(variables),
        redis_url=variables.get("REDIS_URL") or None,
        allowed_hosts=_parse_list(variables, "ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]")),
        trusted_origins=_parse_list(variables, "TRUSTED_ORIGINS", ()),
        https=_parse_bool(variables, "HTTPS"),
        hsts_include_subdomains=_parse_bool(variables, "HSTS_INCLUDE_SUBDOMAINS"),
        hsts_preload=_parse_bool(variables, "HSTS_PRELOAD"),
        debug=_parse_debug(variables, host),
        admin_user=variables.get("GROVE_ADMIN_USER") or "admin",
        admin_password=variables.get("GROVE_ADMIN_PASSWORD") or None,
        admin_token=_parse_secret(variables, "GROVE_ADMIN_TOKEN"),
        read_only=_parse_bool(variables, "READ_ONLY"),
        observe=_parse_bool(variables, "OBSERVE"),
        pod_security_level=_parse_choice(variables, "POD_SECURITY_LEVEL", POD_SECURITY_LEVELS),
        trusted_proxies=_parse_networks(variables, "TRUSTED_PROXIES"),
        api_rate=_parse_rate(variables, "API_RATE", "1200/min"),
        stranger_rate=_parse_rate(variables, "STRANGER_RATE", "60/min"),
        sign_in_rate=_parse_rate(variables, "SIGN_IN_RATE", "10/min"),
        token_max_days=_parse_days(variables, "TOKEN_MAX_DAYS", 365),
        oidc_token_days=_parse_days(variables, "OIDC_TOKEN_DAYS", 30),
        connection_limit=_parse_count(variables, "CONNECTION_LIMIT", 1000),
        stream_limit=None if variables.get("STREAM_LIMIT") == "off" else _parse_count(variables, "STREAM_LIMIT", 50),
        oidc=_parse_oidc(variables),
        worker_processes=_parse_count(variables, "WORKER_PROCESSES", 2),
        reconcile_lease_seconds=_parse_count(variables, "RECONCILE_LEASE_SECONDS", 60),
        metrics_token=variables.get("METRICS_TOKEN") or None,
    )


def read_environment() -> Environment:
    """Parse this process's environment."""
    return parse_environment(os.environ)


def ensure_secret_key(variables: Mapping[str, str], data_dir: Path) -> str:
    """Return SECRET_KEY, else the one kept in DATA_DIR, made on first use and readable by its owner only."""
    if given := variables.get("SECRET_KEY"):
        return given
    path = data_dir / "secret_key"
    try:
        ensure_data_dir(data_dir)
        _write_once(path, secrets.token_urlsafe(50))
        return path.read_text()
    except OSError as error:
        raise ConfigurationError(
            f"DATA_DIR is {data_dir}, where the secret key cannot be kept ({error.strerror}); "
            "set DATA_DIR to a folder that can be written, or set SECRET_KEY"
        ) from error


def ensure_data_dir(data_dir: Path) -> None:
    """Make DATA_DIR if it is missing, readable by its owner only; one that others can open is closed or refused."""
    try:
        ensure_private(data_dir)
    except NotPrivateError as error:
        raise ConfigurationError(str(error)) from error


def _write_once(path: Path, text: str) -> None:
    """Create the file with its content in one step; of several processes starting at once the first wins."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _parse_port(variables: Mapping[str, str], name: str, default: int) -> int:
    number = _parse_count(variables, name, default)
    if number > _HIGHEST_PORT:
        raise ConfigurationError(f"{name} is {number}; set it to a port from 1 to {_HIGHEST_PORT}")
    return number


def _parse_count(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigurationError(f"{name} is {text!r}; set it to a whole number from 1 up")
    return int(text)


def _parse_days(variables: Mapping[str, str], name: str, default: int) -> int | None:
    text = variables.get(name) or str(default)
    if text == "off":
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_DAYS:
        raise ConfigurationError(f"{name} is {text!r}; set it to a number of days from 1 to {_MAX_DAYS}, or to off")
    return int(text)


def _parse_choices(variables: Mapping[str, str], name: str, choices: tuple[str, ...]) -> tuple[str, ...]:
    chosen = _parse_list(variables, name, choices[:1])
    unknown = next((text for text in chosen if text not in choices), None)
    if unknown is not None:
        raise ConfigurationError(
            f"{name} is {unknown!r}; set it to one of {', '.join(choices)}, or to several separated by commas"
        )
    return tuple(dict.fromkeys(chosen))


def _parse_choice(variables: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = variables.get(name) or choices[0]
    if text not in choices:
        raise ConfigurationError(f"{name} is {text!r}; set it to one of {', '.join(choices)}")
    return text


def _parse_bool(variables: Mapping[str, str], name: str) -> bool:
    text = variables.get(name, "").lower()
    if text not in _TRUE | _FALSE:
        raise ConfigurationError(f"{name} is {text!r}; set it to 1 or 0")
    return text in _TRUE


def _parse_debug(variables: Mapping[str, str], host: str) -> bool:
    """Read DEBUG, which shows the source and the variables of a failed request to whoever sent it."""
    debug = _parse_bool(variables, "DEBUG")
    if debug and host not in _LOOPBACK:
        raise ConfigurationError(
            f"DEBUG is 1 and HOST is {host!r}, where other machines would read debug pages; "
            "set DEBUG to 0, or HOST to 127.0.0.1"
        )
    return debug


def _parse_database(variables: Mapping[str, str]) -> str | None:
    """Read the kind of the database; nothing else of the URL is shown, since it may hold a password."""
    url = variables.get("DATABASE_URL") or None
    kind = url.partition(":")[0] if url else "sqlite"
    if kind not in _DATABASE_KINDS:
        shown = f" begins with {kind!r}" if url and "://" in url and kind.isalnum() else " cannot be read"
        raise ConfigurationError(f"DATABASE_URL{shown}; set it to postgresql://user:password@host:port/name")
    return url


def _parse_secret(variables: Mapping[str, str], name: str) -> str | None:
    """Read a secret that stands for an account; what it is is never shown, not even when it cannot be used."""
    text = variables.get(name) or None
    if text is not None and not re.fullmatch(f"[!-~]{{{_MIN_TOKEN_LENGTH},}}", text):
        raise ConfigurationError(
            f"{name} cannot be used; set it to at least {_MIN_TOKEN_LENGTH} letters, digits and signs without blanks, "
            f"e.g. to what this prints: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


def _parse_networks(variables: Mapping[str, str], name: str) -> tuple[Network, ...]:
    networks = []
    for text in _parse_list(variables, name, ()):
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise ConfigurationError(
                f"{name} has {text!r}; set it to addresses or networks separated by commas, e.g. 10.0.0.0/8"
            ) from error
    return tuple(networks)


def _parse_rate(variables: Mapping[str, str], name: str, default: str) -> Rate | None:
    text = variables.get(name) or default
    if text == "off":
        return None
    count, _, period = text.partition("/")
    if not count.isascii() or not count.isdigit() or int(count) < 1 or period not in _PERIODS:
        raise ConfigurationError(
            f"{name} is {text!r}; set it to a number and one of {', '.join(_PERIODS)}, e.g. {default}, or to off"
        )
    return Rate(int(count), _PERIODS[period])


def _parse_oidc(variables: Mapping[str, str]) -> Oidc | None:
    needed = ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET")
    missing = [name for name in needed if not variables.get(name)]
    if len(missing) == len(needed):
        return None
    if missing:
        raise ConfigurationError(f"Single sign-on needs {', '.join(needed)}; set {' and '.join(missing)} too")
    return Oidc(
        issuer=_parse_issuer(variables["OIDC_ISSUER"]),
        client_id=variables["OIDC_CLIENT_ID"],
        client_secret=variables["OIDC_CLIENT_SECRET"],
        name=variables.get("OIDC_NAME") or "single sign-on",
        scopes=variables.get("OIDC_SCOPES") or "openid profile email",
        username_claim=variables.get("OIDC_USERNAME_CLAIM") or "preferred_username",
        groups_claim=variables.get("OIDC_GROUPS_CLAIM") or "groups",
        roles=_parse_roles(variables, "OIDC_ROLES"),
    )


def _parse_issuer(text: str) -> str:
    """Accept plain HTTP on this machine only: on a network anybody could answer in the provider's name."""
    try:
        url = urlsplit(text)
        is_local = url.hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        url, is_local = urlsplit(""), False
    if url.scheme != "https" and not (url.scheme == "http" and is_local):
        raise ConfigurationError(
            f"OIDC_ISSUER is {text!r}; set it to the https:// address that the provider names as its issuer"
        )
    return text


def _parse_roles(variables: Mapping[str, str], name: str) -> dict[str, str]:
    roles = {}
    for text in _parse_list(variables, name, ()):
        group, _, role = (part.strip() for part in text.rpartition("="))
        if not group or role not in ROLES:
            raise ConfigurationError(
                f"{name} has {text!r}; set it to pairs of a group of the provider and one of {', '.join(ROLES)}, "
                "e.g. platform=admin,sre=operator,*=viewer"
            )
        roles[group] = role
    return roles


def _parse_list(variables: Mapping[str, str], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    items = tuple(item.strip() for item in variables.get(name, "").split(",") if item.strip())
    return items or default
