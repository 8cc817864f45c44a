"""The Django settings, derived from the environment variables in `grove_ui.environment`."""

import os
import tomllib
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF
from django.templatetags.static import static
from kombu import Queue

from grove_ui.environment import (
    BASE_DIR,
    ConfigurationError,
    ensure_data_dir,
    ensure_secret_key,
    read_environment,
)
from rollouts.runtime.private_folder import NotPrivateError, ensure_socket_folder

ENVIRONMENT = read_environment()
DATA_DIR = ENVIRONMENT.data_dir

# --- Security ---------------------------------------------------------------------------------------------------------

DEBUG = ENVIRONMENT.debug
SECRET_KEY = ensure_secret_key(os.environ, DATA_DIR)
ALLOWED_HOSTS = list(ENVIRONMENT.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(ENVIRONMENT.trusted_origins)

SECURE_SSL_REDIRECT = ENVIRONMENT.https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENVIRONMENT.https else None
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if ENVIRONMENT.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = ENVIRONMENT.hsts_include_subdomains
SECURE_HSTS_PRELOAD = ENVIRONMENT.hsts_preload
SECURE_REFERRER_POLICY = "same-origin"
# The database holds only digests of session keys: reading the table does not give access to sessions.
SESSION_ENGINE = "rollouts.accounts.sessions"
SESSION_COOKIE_SECURE = ENVIRONMENT.https
# The owner of the domain decides about subdomains and preload lists: HSTS_INCLUDE_SUBDOMAINS, HSTS_PRELOAD.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SESSION_COOKIE_HTTPONLY = True
# A working day: a role that the identity provider withdraws ends with the next sign-in.
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_SECURE = ENVIRONMENT.https
# A form that selects pods of a large workload has a field for each pod; `request_limits` limits the bytes as well.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 12_000
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

AUTH_USER_MODEL = "rollouts.User"
AUTHENTICATION_BACKENDS = ["rollouts.accounts.permissions.AccountBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"

# Filters what debug pages and error reports show.
DEFAULT_EXCEPTION_REPORTER_FILTER = "rollouts.web.error_reports.ErrorReportFilter"

# --- Applications -----------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "rollouts",
    # Before the admin, as it overrides admin templates. Used by the site of rollouts.admin.site.
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    # Without looking for the site at each start, which takes a fifth of it: the URLs import it.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "csp",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
MIDDLEWARE = [
    "rollouts.web.debug_guard.debug_middleware",
    "rollouts.web.request_id.request_middleware",
    "rollouts.api.problems.problem_middleware",
    "rollouts.web.metrics.metrics_middleware",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "grove_ui.urls"
ASGI_APPLICATION = "grove_ui.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "rollouts.web.page_layout.page_layout",
            ],
        },
    }
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "servestatic.storage.CompressedManifestStaticFilesStorage"},
}

# --- Admin site -------------------------------------------------------------------------------------------------------

UNFOLD = {
    "SITE_TITLE": "Grove UI",
    "SITE_HEADER": "Grove UI",
    "SITE_ICON": lambda _: static("favicon.svg"),
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("favicon.svg")}],
    "STYLES": [lambda _: static("admin-theme.css"), lambda _: static("admin-components.css")],
    "BORDER_RADIUS": "6px",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"navigation": "rollouts.admin.navigation.sidebar_sections"},
    "DASHBOARD_CALLBACK": "rollouts.admin.dashboard.dashboard_callback",
}

# --- REST API ---------------------------------------------------------------------------------------------------------

VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"]["version"]
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    # The first one also sets WWW-Authenticate for anonymous clients.
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rollouts.api.authentication.TokenAuthentication",
        "rollouts.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rollouts.api.permissions.CanViewWorkloads"],
    "DEFAULT_THROTTLE_CLASSES": ["rollouts.api.throttling.CallerThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rollouts.api.rendering.OrjsonRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rollouts.api.parsers.StrictJSONParser"],
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "rollouts.api.problems.exception_handler",
    "URL_FORMAT_OVERRIDE": None,
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Grove UI",
    "DESCRIPTION": "The REST API of Grove UI, the rollout control panel for Grove workloads on Kubernetes.",
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "ENFORCE_NON_BLANK_FIELDS": True,
    # Adds what is the same for all operations.
    "POSTPROCESSING_HOOKS": ["rollouts.api.schema.complete_schema"],
    "PATH_CONVERTER_OVERRIDES": {
        "cluster": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^[^/\x00-\x1f\x7f]+$"},
        "object": {"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"},
        "number": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    },
}

# A stream sends a heartbeat at this interval when nothing changes, and checks the permission of its viewer again.
FEED_HEARTBEAT_SECONDS = 15.0
FEED_RECHECK_SECONDS = 60.0

# --- Database ---------------------------------------------------------------------------------------------------------


def _database() -> dict[str, Any]:
    """PostgreSQL by DATABASE_URL, else SQLite: WAL, so that readers and the one writer do not block each other."""
    if ENVIRONMENT.database_url is None:
        ensure_data_dir(DATA_DIR)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA_DIR / "grove.sqlite3",
            "TEST": {
                "NAME": DATA_DIR / "test.sqlite3"
            },  # a file, as in production; a database in memory has no locks to test
            "OPTIONS": {
                # A transaction takes the write lock at its start: a later upgrade could fail with "database is locked".
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
            },
        }
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(ENVIRONMENT.database_url))
    except (dj_database_url.ParseError, dj_database_url.UnknownSchemeError, ValueError) as error:
        # The message quotes neither the URL nor the parser, as both may contain the password.
        raise ConfigurationError(
            "DATABASE_URL cannot be read; set it to postgresql://user:password@host:port/name"
        ) from error
    if parsed["ENGINE"] == "django.db.backends.postgresql":
        # Each thread keeps a connection while it works: enough for the threads of a web process or a watcher. An
        # attempt to reconnect gives up before a caller does, so that the next caller starts another at once: with the
        # default, pauses between attempts double for five minutes, and a database that is back is not used for minutes.
        pool = {"timeout": 5, "min_size": 1, "max_size": 20, "reconnect_timeout": 3}
        parsed["OPTIONS"] = {**parsed.get("OPTIONS", {}), "pool": pool}
    return parsed


DATABASES: dict[str, Any] = {"default": _database()}

# --- Redis and Celery -------------------------------------------------------------------------------------------------

_LONGEST_SOCKET_PATH = 100  # the system's limit is 108 bytes


def _local_redis_socket() -> Path:
    """Return the socket of the local Redis: in DATA_DIR, or in a folder with a shorter path if needed."""
    socket = DATA_DIR / "redis.sock"
    if ENVIRONMENT.redis_url or len(str(socket).encode()) <= _LONGEST_SOCKET_PATH:
        return socket
    try:
        return ensure_socket_folder(DATA_DIR) / "redis.sock"
    except (NotPrivateError, OSError) as error:
        raise ConfigurationError(f"The socket of the local Redis cannot be created: {error}") from error


REDIS_SOCKET = _local_redis_socket()
REDIS_URL = ENVIRONMENT.redis_url or f"unix://{REDIS_SOCKET}"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}

# The time limits of a pass, in this order: a call to the cluster, the soft limit, the hard limit, the lease on the key,
# and, much later, redelivery by the broker.
RECONCILE_LEASE_SECONDS = ENVIRONMENT.reconcile_lease_seconds
CLUSTER_REQUEST_TIMEOUT = RECONCILE_LEASE_SECONDS / 6
CELERY_TASK_SOFT_TIME_LIMIT = RECONCILE_LEASE_SECONDS / 2
CELERY_TASK_TIME_LIMIT = RECONCILE_LEASE_SECONDS * 2 / 3
# No emulated acknowledgements: if a message is lost with its worker, the sweep finds its workload. They cost two round
# trips for each message, and restoring messages while Redis is down ends the whole worker.
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600, "ack_emulation": False}

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A worker takes no message while all of its processes are busy: another worker can process it at once.
CELERY_WORKER_DISABLE_PREFETCH = True
# Releases the claims of a pool process that died.
CELERY_WORKER_POOL = "rollouts.queue.worker_pool:TaskPool"
CELERY_WORKER_CONCURRENCY = ENVIRONMENT.worker_processes
CELERY_TIMEZONE = "UTC"
# A worker takes from both queues in turn, so the sweep does not wait behind ten thousand workloads.
CELERY_TASK_DEFAULT_QUEUE = "reconcile"
CELERY_TASK_QUEUES = [Queue("reconcile"), Queue("upkeep")]
CELERY_TASK_ROUTES = {"rollouts.tasks.sweep": {"queue": "upkeep"}, "rollouts.tasks.resync": {"queue": "upkeep"}}
CELERY_BEAT_SCHEDULE = {
    # An expired sweep is dropped, as the next one does the same. Beat sets the expiry by its clock, so it must exceed
    # the difference between the clocks of two machines: otherwise no worker would ever sweep.
    "sweep": {"task": "rollouts.tasks.sweep", "schedule": 1.0, "options": {"expires": 60.0}},
    "resync": {"task": "rollouts.tasks.resync", "schedule": 300.0, "options": {"expires": 300.0}},
}

# The age of the last heartbeat at which /readyz fails. API servers send a bookmark about every minute.
SWEEP_MAX_AGE_SECONDS = 15
CLUSTER_MAX_AGE_SECONDS = 180
# How long an answer of /readyz is cached, as every client may request it.
READINESS_CACHE_SECONDS = 1.0

# --- Log --------------------------------------------------------------------------------------------------------------

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "bounded": {"()": "rollouts.telemetry.log_limits.BoundedFilter"},
    },
    "formatters": {
        "line": {"()": "rollouts.telemetry.log_limits.Formatter", "format": "%(levelname)-7s %(name)s: %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["bounded"]}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        # At INFO these log one line a second, for the sweep.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.worker.request": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "uvicorn.access": {"level": "WARNING"},
        # The response says why a request was refused, and the audit records commands: clients must not fill the log.
        "django.request": {"level": "ERROR"},
        "urllib3": {"level": "ERROR"},
        "rollouts.cluster.client": {"level": "WARNING"},  # retries need no log line, and a failure is raised
        "psycopg.pool": {"level": "ERROR"},
    },
}
