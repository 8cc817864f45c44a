"""The address of a cluster and our credentials, from a kubeconfig file or from the service account of our pod.

Before it: the settings, which choose one of the two. There is no default path, no `KUBECONFIG` of the environment and
no fallback from one to the other. After it: `connection`, which calls the returned loader at the start, and again when
the server rejects the credentials or cannot be reached.

The kubernetes package does the loading (client certificates, tokens, exec plugins, OIDC, proxies); this module adds
error sentences that an operator can act on. Texts of that package are not shown, since they quote parts of the file,
tokens included. Known limit: an exec plugin that never ends blocks the caller.
"""

# The loaders of the kubernetes package carry no types.
# mypy: allow-untyped-calls

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from rollouts.cluster.errors import Misconfigured

ConfigurationLoader = Callable[[], Configuration]
"""Loads the configuration of a cluster; raises Misconfigured if it cannot."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# What the package raises for files that do not have the expected form.
_LOADER_ERRORS = (ConfigException, AttributeError, KeyError, TypeError, ValueError, OSError)


def kubeconfig(path: str | Path, context: str | None = None) -> ConfigurationLoader:
    """Use a kubeconfig file, or several joined as in `KUBECONFIG`, and its current context unless one is named."""
    return lambda: _load_kubeconfig(str(path), context)


def current_context(path: str | Path) -> str:
    """Return the current context of a kubeconfig file; raise Misconfigured if it has none."""
    return _choose_context(str(path), _read_kubeconfig(str(path)), None)


def in_cluster(directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> ConfigurationLoader:
    """Use the service account of the pod we run in."""
    return lambda: _load_in_cluster(directory, environ)


def current_authorization(configuration: Configuration) -> str | None:
    """Return the Authorization header; if the credentials expire, read the token file or run the plugin again."""
    try:
        header: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except _LOADER_ERRORS:
        raise Misconfigured("The credentials have expired and could not be loaded again.") from None
    # A token file often ends with a newline, which a header cannot hold.
    header = header.strip() if header else None
    if header and not (header.isascii() and header.isprintable()):
        raise Misconfigured("The credentials contain characters that an HTTP header cannot hold.")
    return header


def _load_kubeconfig(path: str, context: str | None) -> Configuration:
    merged = _read_kubeconfig(path)
    chosen = _choose_context(path, merged, context)
    configuration = Configuration()
    try:
        # No persister: the kubeconfig of a user is never written.
        KubeConfigLoader(merged, active_context=chosen, config_base_path=None).load_and_set(configuration)
    except _LOADER_ERRORS as error:
        detail = _safe_detail(error) or "a required entry is missing or has the wrong form"
        raise Misconfigured(f"Context {chosen!r} of kubeconfig {path} cannot be used: {detail}.") from None
    _require_credentials_of_plugin(path, merged, chosen, configuration)
    return configuration


def _read_kubeconfig(path: str) -> Any:
    try:
        merged = KubeConfigMerger(path).config
    except OSError as error:
        raise Misconfigured(f"Kubeconfig {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError):
        # The parser's own message quotes the line with the error.
        raise Misconfigured(f"Kubeconfig {path} is not valid YAML.") from None
    except _LOADER_ERRORS:
        raise Misconfigured(f"Kubeconfig {path} is not a kubeconfig: it must be a mapping with named lists.") from None
    if merged is None:
        raise Misconfigured(f"Kubeconfig {path} does not exist.")
    return merged


def _choose_context(path: str, merged: Any, context: str | None) -> str:
    names = [node.value["name"] for node in merged.value["contexts"]]
    chosen = context or merged.value.get("current-context")
    if not chosen:
        raise Misconfigured(f"Kubeconfig {path} has no current context; choose one of: {_join(names)}.")
    if chosen not in names:
        raise Misconfigured(f"Kubeconfig {path} has no context {chosen!r}; it has: {_join(names)}.")
    return str(chosen)


def _require_credentials_of_plugin(path: str, merged: Any, context: str, configuration: Configuration) -> None:
    """Raise Misconfigured if an exec plugin returned nothing: the package only logs that."""
    user_name = _find_entry(merged, "contexts", context)["context"].get("user")
    user = _find_entry(merged, "users", user_name).get("user") or {}
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        command = user["exec"].get("command")
        raise Misconfigured(f"The credential plugin {command!r} of kubeconfig {path} returned no credentials.")


def _find_entry(merged: Any, section: str, name: str | None) -> Mapping[str, Any]:
    return next((node.value for node in merged.value[section] if node.value["name"] == name), {})


def _safe_detail(error: Exception) -> str | None:
    """Return the package's own message if it names a file and nothing else."""
    text = str(error)
    return text if text.startswith("File does not exist") else None


def _load_in_cluster(directory: Path, environ: Mapping[str, str]) -> Configuration:
    configuration = Configuration()
    loader = InClusterConfigLoader(
        token_filename=str(directory / "token"), cert_filename=str(directory / "ca.crt"), environ=environ
    )
    try:
        loader.load_and_set(configuration)
    except _LOADER_ERRORS as error:
        raise Misconfigured(
            f"This process does not run in a cluster, or its pod has no service account: {error}"
        ) from error
    return configuration


def _join(names: list[str]) -> str:
    return ", ".join(names) or "none"
