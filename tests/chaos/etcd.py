"""Everything that was ever written to a cluster, read from the etcd behind it.

A watch may miss writes while its server is down. etcd keeps every version until it is compacted, so that after a run no
write is missing, whatever was killed. Needs an API server that stores JSON and does not
compact: `running_apiserver(*REMEMBERING)`.
"""

import base64
import urllib.request
from collections.abc import Iterator
from typing import Any

import orjson

from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import SERVICES
from tests.scenarios.scene import WATCHED
from tests.scenarios.witness import Event

REMEMBERING = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
_ALL, _BEYOND_ALL = "/registry/", "/registry0"
# A key of ours that marks the end of the history: outside of all kinds, so that no API server reads it.
_END = "/registry/zzz-here-the-past-ends"


def read_events(etcd_url: str, namespace: str) -> list[Event]:
    """Return every write to the watched kinds of a namespace, in order."""
    prefixes = {_prefix(kind, namespace): kind for kind in WATCHED}
    events = []
    for change in _changes(etcd_url):
        key = base64.b64decode(change["kv"]["key"]).decode()
        kind = prefixes.get(key.rpartition("/")[0])
        if kind is not None:
            events.append(_event(kind, change))
    return events


def _event(kind: Resource, change: dict[str, Any]) -> Event:
    gone = change.get("type") == "DELETE"
    version = int(change["kv"]["mod_revision"])
    obj: Obj = orjson.loads(base64.b64decode((change["prev_kv"] if gone else change["kv"])["value"]))
    obj["metadata"]["resourceVersion"] = str(version)
    return Event(version, 0.0, kind, obj, gone)


def _prefix(kind: Resource, namespace: str) -> str:
    place = "services/specs" if kind is SERVICES else kind.plural
    return f"/registry/{kind.group}/{place}/{namespace}" if kind.group else f"/registry/{place}/{namespace}"


def _changes(etcd_url: str) -> Iterator[dict[str, Any]]:
    """Yield every change from the first to now."""
    with _call(etcd_url, "kv/put", {"key": _encode(_END), "value": _encode("x")}) as answer:
        end = int(orjson.loads(answer.read())["header"]["revision"])
    asked = {"key": _encode(_ALL), "range_end": _encode(_BEYOND_ALL), "start_revision": "1", "prev_kv": True}
    with _call(etcd_url, "watch", {"create_request": asked}) as stream:
        for line in stream:
            for change in orjson.loads(line)["result"].get("events") or ():
                if int(change["kv"]["mod_revision"]) >= end:
                    return
                yield change


def _call(etcd_url: str, path: str, body: dict[str, Any]) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(f"{etcd_url}/v3/{path}", orjson.dumps(body)), timeout=60)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
