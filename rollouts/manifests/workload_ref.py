"""The name of a workload, and its key `cluster/namespace/name`, which the queue, the change feed and logs use.

Every package that needs the key builds it and takes it apart here. Cluster, namespace and name contain no slash.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """A workload by name. With an empty name it is a namespace, with an empty namespace a cluster."""

    cluster: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """The key of the workload."""
        return workload_key(self.cluster, self.namespace, self.name)

    @classmethod
    def parse(cls, key: str) -> "WorkloadRef":
        """Return the workload with this key.

        >>> WorkloadRef.parse("east/web/chat")
        WorkloadRef(cluster='east', namespace='web', name='chat')
        """
        cluster, namespace, name = key.split("/")
        return cls(cluster, namespace, name)

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.namespace, self.name) if part)


def workload_key(cluster: str, namespace: str, name: str) -> str:
    """Return the key of a workload; for loops over many rows, where a `WorkloadRef` for each would cost time.

    >>> workload_key("east", "web", "chat")
    'east/web/chat'
    """
    return f"{cluster}/{namespace}/{name}"


def namespace_of(key: str) -> str:
    """Return the namespace of a workload's key; for loops over many changes, like `workload_key`.

    >>> namespace_of("east/web/chat")
    'web'
    """
    return key.split("/")[1]
