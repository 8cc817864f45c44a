"""Path converters of the API.

A segment that cannot be a valid name does not match, so the answer is 404 as for any other unknown path, and no view
receives a name that the database cannot be queried for.
"""

from typing import Final

from django.urls import register_converter


class _ClusterConverter:
    """The name of a cluster: the name of a kubeconfig context, which may contain almost any character."""

    regex = r"[^/\x00-\x1f\x7f]{1,253}"

    def to_python(self, value: str) -> str:
        """Return the name unchanged."""
        return value

    def to_url(self, value: str) -> str:
        """Return the name unchanged."""
        return value


class _ObjectConverter(_ClusterConverter):
    """The name of a namespace or an object in Kubernetes."""

    regex = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"


class _NumberConverter:
    """A number that fits a database column."""

    regex = "[1-9][0-9]{0,8}"

    def to_python(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Return its digits."""
        return str(value)


register_converter(_ClusterConverter, "cluster")
register_converter(_ObjectConverter, "object")
register_converter(_NumberConverter, "number")

CLUSTER: Final = "clusters/<cluster:cluster>/"
WORKLOAD: Final = "workloads/<cluster:cluster>/<object:namespace>/<object:name>/"
