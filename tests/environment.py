"""Gives the tests an environment of their own, before Django reads its settings.

Loaded as a pytest plugin (see pyproject.toml), since conftest files are read after the settings. Whatever the
developer's shell says about ports, clusters and passwords, the tests see the defaults, a temporary data folder,
and only the database that `make test` chose.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

# No test depends on wall time: a busy machine must not fail one.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_OURS = (
    *("HOST", "PORT", "SANDBOX_PORT", "CLUSTER", "KUBECONFIG", "KUBE_CONTEXT", "REDIS_URL", "SECRET_KEY"),
    *(
        "ALLOWED_HOSTS",
        "TRUSTED_ORIGINS",
        "HTTPS",
        "HSTS_INCLUDE_SUBDOMAINS",
        "HSTS_PRELOAD",
        "DEBUG",
        "WORKERS",
        "WORKER_PROCESSES",
    ),
    *("RECONCILE_LEASE_SECONDS", "METRICS_TOKEN"),
    *("GROVE_ADMIN_USER", "GROVE_ADMIN_PASSWORD", "GROVE_ADMIN_TOKEN"),
    *("READ_ONLY", "TRUSTED_PROXIES", "API_RATE", "STRANGER_RATE", "SIGN_IN_RATE"),
    *("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_NAME", "OIDC_SCOPES"),
    *("OIDC_USERNAME_CLAIM", "OIDC_GROUPS_CLAIM", "OIDC_ROLES", "OIDC_TOKEN_DAYS", "TOKEN_MAX_DAYS"),
)

for name in _OURS:
    os.environ.pop(name, None)
# Each of the hundreds of processes that the tests start would compile the whole product by itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ["DJANGO_SETTINGS_MODULE"] = "grove_ui.settings"
# The tests wait for the sandbox while other tests use every processor: it must not give way to those.
os.environ["SANDBOX_NICENESS"] = "0"
DATA_DIR = Path(tempfile.mkdtemp(prefix="grove-ui-"))
os.environ["DATA_DIR"] = str(DATA_DIR)
atexit.register(shutil.rmtree, DATA_DIR, ignore_errors=True)
