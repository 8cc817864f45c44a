"""PodCliqueSets by plain HTTP, so that a test sees the unchanged responses of a server, errors included."""

from dataclasses import dataclass
from typing import Self

from tests.contract.raw import Raw, RawAnswer
from tests.deploy.manifests import Obj

UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that a server found wrong."""

    field: str
    message: str


class Sets:
    """The PodCliqueSets of one namespace; writes are dry runs unless they say otherwise."""

    def __init__(self, raw: Raw, namespace: str) -> None:
        self.raw = raw
        self.namespace = namespace
        self._path = f"/apis/grove.io/v1alpha1/namespaces/{namespace}/podcliquesets"

    @classmethod
    def in_new_namespace(cls, raw: Raw, namespace: str) -> Self:
        """Create the namespace and return its sets."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        _ = raw.call("POST", "/api/v1/namespaces", body).obj
        return cls(raw, namespace)

    def create(self, manifest: Obj, *, dry_run: bool = True) -> RawAnswer:
        """Create a set; a field that is not in the schema is rejected."""
        return self.raw.call("POST", f"{self._path}?fieldValidation=Strict{_dry(dry_run)}", manifest)

    def update(self, manifest: Obj, *, dry_run: bool = True) -> RawAnswer:
        """Replace a set."""
        name = manifest["metadata"]["name"]
        return self.raw.call("PUT", f"{self._path}/{name}?fieldValidation=Strict{_dry(dry_run)}", manifest)

    def apply(self, manifest: Obj, manager: str, *, force: bool = False) -> RawAnswer:
        """Apply a set or a part of it on the server's side."""
        query = f"fieldManager={manager}&force={str(force).lower()}&fieldValidation=Strict"
        return self.raw.call(
            "PATCH",
            f"{self._path}/{manifest['metadata']['name']}?{query}",
            manifest,
            content_type="application/apply-patch+yaml",
        )

    def scale(self, name: str, replicas: int, *, dry_run: bool = True) -> RawAnswer:
        """Set the replicas through the scale subresource, as kubectl and autoscalers do."""
        return self.raw.call(
            "PATCH",
            f"{self._path}/{name}/scale?{_dry(dry_run)}",
            {"spec": {"replicas": replicas}},
            content_type="application/merge-patch+json",
        )

    def get(self, name: str) -> Obj:
        """Return a stored set."""
        return self.raw.call("GET", f"{self._path}/{name}").obj


def causes(answer: RawAnswer) -> list[Cause]:
    """Return what the server found wrong; fails when it found nothing wrong.

    The remark that rules were not evaluated because the object is malformed is left out: it is about no field.
    """
    assert answer.code == UNPROCESSABLE, answer
    found = [Cause(cause.get("field", ""), cause["message"]) for cause in answer.status["details"]["causes"]]
    return [cause for cause in found if "some validation rules were not checked" not in cause.message]


def _dry(dry_run: bool) -> str:
    return "&dryRun=All" if dry_run else ""
