"""The environment variables of the product, parsed once into values.

Every setting is an environment variable with a working default; this module is the complete list. `settings` and the
supervisor build on it; it does not import Django. An invalid variable raises ConfigurationError with one sentence that
names the variable and a valid value, and nothing starts.
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
    """An invalid setting; the message is the sentence to show."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of requests in a number of seconds, at once or spread out."""

    count: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Oidc:
    """An OpenID Connect provider, and the roles of its groups."""

    issuer: str  # the `iss` claim of its tokens; the path of the discovery document is not part of it
    client_id: str
    client_secret: str = field(repr=False)
    name: str  # label of the button on the sign-in page
    scopes: str
    username_claim: str
    groups_claim: str
    # Roles by group of the provider, e.g. {"platform": "admin"}; "*" means every account.
    roles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Environment:
    """All settings."""

    # Where the web process listens. Loopback by default: the product requires a sign-in but has no TLS of its own.
    host: str
    port: int
    sandbox_port: int
    # Holds the SQLite database, the data of Redis and of the sandbox, and the generated secret key.
    data_dir: Path
    # The sources of clusters: one or several of "sandbox", "kubeconfig" and "in-cluster".
    clusters: tuple[str, ...]
    # With "kubeconfig": the file (None: ~/.kube/config) and its contexts, one cluster each (empty: the current one).
    kubeconfig: Path | None
    kube_contexts: tuple[str, ...]
    # None: SQLite and the local Redis server in `data_dir`.
    database_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    allowed_hosts: tuple[str, ...]
    # Trusted origins of forms, for a proxy that changes the Host header, e.g. "https://grove.example.com".
    trusted_origins: tuple[str, ...]
    # Whether clients use HTTPS: sets secure cookies, HSTS and the redirect to HTTPS.
    https: bool
    # With HTTPS: whether HSTS includes subdomains, and whether browsers may preload it.
    hsts_include_subdomains: bool
    hsts_preload: bool
    debug: bool
    admin_user: str
    admin_password: str | None = field(repr=False)
    # An API token of the first account; None: none.
    admin_token: str | None = field(repr=False)
    # Rejects all commands; the controller goes on with rollouts.
    read_only: bool
    # Neither the controller nor a command writes to a cluster.
    observe: bool
    # The Pod Security level of namespaces that have none of their own (docs/accounts.md).
    pod_security_level: str
    # Proxies whose X-Forwarded-For header is trusted; none by default, as every client can send that header.
    trusted_proxies: tuple[Network, ...]
    # Requests of an account, requests of an anonymous client, and wrong passwords; None: no limit.
    api_rate: Rate | None
    stranger_rate: Rate | None
    sign_in_rate: Rate | None
    # The longest lifetime of an API token in days; None: unlimited.
    token_max_days: int | None
    # Days after the last single sign-on until the tokens of the account are suspended; None: never.
    oidc_token_days: int | None
    # Open connections of a web process; above the limit it closes connections that wait for their clients.
    connection_limit: int
    # Live pages and feeds that an account may have open in a web process; None: no limit.
    stream_limit: int | None
    # Single sign-on; None: passwords only.
    oidc: Oidc | None
    # The Celery workers that `manage.py run` starts: if one is killed, the others need no time to start.
    workers: int
    # The processes of all these workers together, or of a worker that is started by itself.
    worker_processes: int
    # The lease of a worker on a workload; the time limits of a pass are fractions of it.
    reconcile_lease_seconds: int
    # Lets Prometheus read /metrics; None: only signed-in accounts may.
    metrics_token: str | None = field(repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the web process."""
        return self.host in _LOOPBACK


def parse_environment(variables: Mapping[str, str]) -> Environment:
    """Parse environment variables; raises ConfigurationError, which names the variable."""
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
        workers=_parse_count(variables, "WORKERS", 2),
        worker_processes=_parse_count(variables, "WORKER_PROCESSES", 2),
        reconcile_lease_seconds=_parse_count(variables, "RECONCILE_LEASE_SECONDS", 60),
        metrics_token=variables.get("METRICS_TOKEN") or None,
    )


def read_environment() -> Environment:
    """Parse the environment of this process."""
    return parse_environment(os.environ)


def ensure_secret_key(variables: Mapping[str, str], data_dir: Path) -> str:
    """Return SECRET_KEY, or else the key in DATA_DIR, which is generated on first use."""
    if given := variables.get("SECRET_KEY"):
        return given
    path = data_dir / "secret_key"
    try:
        ensure_data_dir(data_dir)
        _write_once(path, secrets.token_urlsafe(50))
        return path.read_text()
    except OSError as error:
        raise ConfigurationError(
            f"DATA_DIR is {data_dir}, where the secret key cannot be stored ({error.strerror}); "
            "set DATA_DIR to a writable folder, or set SECRET_KEY"
        ) from error


def ensure_data_dir(data_dir: Path) -> None:
    """Create DATA_DIR if it is missing, and ensure that only its owner can open it."""
    try:
        ensure_private(data_dir)
    except NotPrivateError as error:
        raise ConfigurationError(str(error)) from error


def _write_once(path: Path, text: str) -> None:
    """Create a file with its content atomically; if several processes start at once, the first wins."""
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
        raise ConfigurationError(f"{name} is {text!r}; set it to a whole number of at least 1")
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
    """Parse DEBUG, which shows source and variables of a failed request.

    This refuses what `make run` starts; `rollouts.web.debug_guard` refuses clients of any other server.
    """
    debug = _parse_bool(variables, "DEBUG")
    if debug and host not in _LOOPBACK:
        raise ConfigurationError(
            f"DEBUG is 1 and HOST is {host!r}, so other machines could read debug pages; "
            "set DEBUG to 0, or HOST to 127.0.0.1"
        )
    return debug


def _parse_database(variables: Mapping[str, str]) -> str | None:
    """Return the URL of the database; an error shows only its scheme, since the URL may hold a password."""
    url = variables.get("DATABASE_URL") or None
    kind = url.partition(":")[0] if url else "sqlite"
    if kind not in _DATABASE_KINDS:
        shown = f" begins with {kind!r}" if url and "://" in url and kind.isalnum() else " cannot be read"
        raise ConfigurationError(f"DATABASE_URL{shown}; set it to postgresql://user:password@host:port/name")
    return url


def _parse_secret(variables: Mapping[str, str], name: str) -> str | None:
    """Return a secret that works as a credential; no error shows its value."""
    text = variables.get(name) or None
    if text is not None and not re.fullmatch(f"[!-~]{{{_MIN_TOKEN_LENGTH},}}", text):
        raise ConfigurationError(
            f"{name} is invalid; set it to at least {_MIN_TOKEN_LENGTH} ASCII letters, digits and symbols, no spaces, "
            f"e.g. to the output of: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return text


def _parse_networks(variables: Mapping[str, str], name: str) -> tuple[Network, ...]:
    networks = []
    for text in _parse_list(variables, name, ()):
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            raise ConfigurationError(
                f"{name} contains {text!r}; set it to addresses or networks separated by commas, e.g. 10.0.0.0/8"
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
        raise ConfigurationError(f"Single sign-on needs {', '.join(needed)}; also set {' and '.join(missing)}")
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
    """Accept plain HTTP on this machine only: on a network anyone could pose as the provider."""
    try:
        url = urlsplit(text)
        is_local = url.hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        url, is_local = urlsplit(""), False
    if url.scheme != "https" and not (url.scheme == "http" and is_local):
        raise ConfigurationError(
            f"OIDC_ISSUER is {text!r}; set it to the https:// URL that the provider names as its issuer"
        )
    return text


def _parse_roles(variables: Mapping[str, str], name: str) -> dict[str, str]:
    roles = {}
    for text in _parse_list(variables, name, ()):
        group, _, role = (part.strip() for part in text.rpartition("="))
        if not group or role not in ROLES:
            raise ConfigurationError(
                f"{name} contains {text!r}; set it to pairs of a group of the provider and one of {', '.join(ROLES)}, "
                "e.g. platform=admin,sre=operator,*=viewer"
            )
        roles[group] = role
    return roles


def _parse_list(variables: Mapping[str, str], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    items = tuple(item.strip() for item in variables.get(name, "").split(",") if item.strip())
    return items or default
