"""The kinds of objects that the product uses, and their paths in the API.

There is one constant for each kind, named by its plural in capitals; callers of `ClusterClient` name the kind by it.
The invariant: a path names the requested object and no other, whatever characters its name contains.
"""

from dataclasses import dataclass
from urllib.parse import quote

from rollouts.cluster.errors import Invalid, StatusCause


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as paths and manifests of the API name it."""

    group: str  # empty for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion of manifests of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The target of a request: all objects of a kind, one object, or a subresource of one."""

    resource: Resource
    namespace: str | None = None  # None: cluster-wide
    name: str | None = None  # None: all of them
    subresource: str | None = None

    @property
    def path(self) -> str:
        """The path in the API."""
        kind = self.resource
        parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
        if self.namespace is not None:
            if not kind.namespaced:
                raise ValueError(f"{kind} are not namespaced, but namespace {self.namespace!r} was given")
            parts += ["namespaces", _quote_segment(self.namespace, "metadata.namespace")]
        elif kind.namespaced and self.name is not None:
            raise ValueError(f"{kind} are namespaced, but no namespace was given for {self.name!r}")
        parts.append(kind.plural)
        if self.name is not None:
            parts.append(_quote_segment(self.name, "metadata.name"))
        if self.subresource is not None:
            parts.append(self.subresource)
        return "/" + "/".join(parts)

    def describe(self, verb: str) -> str:
        """Return the request in words, for example `patch podcliques.grove.io web/my-0-c status`."""
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return " ".join(part for part in (verb, str(self.resource), name, self.subresource) if part)


def _quote_segment(name: str, field: str) -> str:
    """Return a name as one segment of a path.

    A name may come from a form or a URL. An empty one would turn "delete this pod" into "delete all pods"; "..", which
    URL libraries resolve, would turn it into "delete this namespace". The API allows no such name.
    """
    if name in {"", ".", ".."} or "/" in name or "%" in name:
        message = f"{name!r} is not a name that an object can have"
        raise Invalid(message, reason="Invalid", causes=(StatusCause("FieldValueInvalid", field, message),))
    return quote(name, safe="")


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
SELFSUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
CUSTOMRESOURCEDEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

PODCLIQUESETS = Resource("grove.io", "v1alpha1", "podcliquesets", "PodCliqueSet")
PODCLIQUES = Resource("grove.io", "v1alpha1", "podcliques", "PodClique")
PODCLIQUESCALINGGROUPS = Resource("grove.io", "v1alpha1", "podcliquescalinggroups", "PodCliqueScalingGroup")
PODGANGS = Resource("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang")
