"""Secrets that can be recognised, planted wherever an installation and its workloads may hold one.

Each is a random text of its own, so that whatever shows up somewhere says where it came from. A workload has one in
each corner of a pod spec that people put secrets into although they should not. Some are in places where nothing tells
that they are secrets: those may be shown to accounts that may apply a manifest, and to nobody else.
"""

import base64
import json
import secrets
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

CLUSTER = "prod"
NAMESPACE = "default"
NAME = "careless"
# How the places begin that nothing tells of.
HARMLESS = "harmless: "


class Planted:
    """The secrets by where they were planted."""

    def __init__(self) -> None:
        self._by_place: dict[str, str] = defaultdict(lambda: f"planted{secrets.token_hex(12)}")

    def at(self, place: str) -> str:
        """Return the secret of a place, the same each time."""
        return self._by_place[place]

    def keep(self, place: str, secret: str) -> None:
        """Take in a secret that was made elsewhere."""
        self._by_place[place] = secret

    def found_in(self, text: str) -> list[str]:
        """Say which secrets a text holds, as they are or encoded."""
        return [place for place, secret in self._by_place.items() if any(form in text for form in _forms(secret))]


def _forms(secret: str) -> tuple[str, ...]:
    # What a longer text around it becomes in base64 depends on where it begins; three beginnings are all there are.
    encoded = (base64.b64encode(b"x" * shift + secret.encode()).decode()[4:-4] for shift in range(3))
    return secret, quote(secret), *encoded


def write_kubeconfig(path: Path, server: str, planted: Planted) -> None:
    """Write a kubeconfig that leads to a server with a token."""
    config = {
        "current-context": CLUSTER,
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": "robot"}}],
        "clusters": [{"name": CLUSTER, "cluster": {"server": server}}],
        "users": [{"name": "robot", "user": {"token": planted.at("kubeconfig")}}],
    }
    path.write_text(json.dumps(config))


def careless_workload(planted: Planted) -> dict[str, Any]:
    """Return a manifest with a secret in every corner."""
    at = planted.at
    container = {
        "name": "server",
        "image": "example/chat:v1",
        "command": ["sh", "-c", _script(planted)],
        "args": [
            *("serve", f"--api-key={at('args, in one')}", "--token", at("args, in two")),
            f"--backend=https://robot:{at('args, in a URL')}@models.example.com/v1",
            *("-p", at("args, after -p"), "-a", at("args, after -a"), at(f"{HARMLESS}positional argument")),
            *(f"//robot:{at('args, without a scheme')}@cache", f"robot:{at('args, registry')}@r.example.com/chat"),
        ],
        "env": [
            {"name": "HF_TOKEN", "value": at("env with a telling name")},
            {"name": "GREETING", "value": at("env with a harmless name")},
            {"name": "NCCL_PASSWORD", "value": at("env with a harmless beginning")},
            {"name": "VLLM_CFG", "value": at(f"{HARMLESS}env of a setting")},
            {"name": "PULL_FROM", "value": f"https://robot:{at('env, in a URL')}@registry.example.com/v2"},
        ],
        "readinessProbe": {
            "httpGet": {
                "path": "/ready",
                "port": 8000,
                "httpHeaders": [{"name": "Authorization", "value": f"Bearer {at('header of a probe')}"}],
            }
        },
        "lifecycle": {"preStop": {"exec": {"command": ["curl", f"--user=robot:{at('hook')}", "localhost"]}}},
    }
    first = {"name": "fetch", "image": "example/fetch:v1", "env": [{"name": "AWS_SECRET", "value": at("init")}]}
    sidecar = {"name": "proxy", "image": f"robot:{at('image')}@registry.example.com/proxy:v1"}
    pod_spec = {
        "initContainers": [first],
        "containers": [container, sidecar],
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [
            {"name": "models", "csi": {"driver": "models", "volumeAttributes": {"secretKey": at("volume attribute")}}}
        ],
    }
    clique = {
        "name": "worker",
        "annotations": {
            "example.com/token": at("annotation of a clique"),
            "example.com/note": f"The password is {at('prose in an annotation')}; ask ana.",
        },
        "spec": {"roleName": "worker", "replicas": 1, "podSpec": pod_spec},
    }
    manifest = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "template": {"cliques": [clique]}},
    }
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(manifest)}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": applied}}  # type: ignore[dict-item]


def _script(planted: Planted) -> str:
    at = planted.at
    return "\n".join(
        (
            f"export MODE={at('exported in a script')}",
            f"redis-cli -h cache -a {at('script, redis-cli')} ping | cat",
            f"mysql -u root -p{at('script, mysql')} < {at(f'{HARMLESS}script')}",
            f"sshpass -p {at('script, sshpass')} ssh host; docker login -p {at('script, docker')}",
            f"exec server --password={at('command')}",
        )
    )


def as_yaml(manifest: dict[str, Any]) -> bytes:
    """Render a manifest as people send it."""
    return yaml.safe_dump(manifest).encode()
