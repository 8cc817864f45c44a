"""How the paths of the API name things.

What could not be the name of anything does not match, so it is answered like any other path that leads nowhere, and no
view meets a name that the database could not even be asked for.
"""

from typing import Final

from django.urls import register_converter


class _ClusterConverter:
    """The name of a cluster: that of a context, in which almost anything goes."""

    regex = r"[^/\x00-\x1f\x7f]{1,253}"

    def to_python(self, value: str) -> str:
        """Return it as it stands in the path."""
        return value

    def to_url(self, value: str) -> str:
        """Return it as it is called."""
        return value


class _ObjectConverter(_ClusterConverter):
    """The name of a namespace or an object in Kubernetes."""

    regex = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"


class _NumberConverter:
    """A number that the database can be asked for."""

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
