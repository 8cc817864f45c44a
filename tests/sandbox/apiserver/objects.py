"""Small manifests for the tests, and a clock that they set."""

from datetime import UTC, datetime, timedelta
from typing import Any

Obj = dict[str, Any]

WIDGETS = "/apis/test.grove.io/v1alpha1/namespaces/default/widgets"
PODS = "/api/v1/namespaces/default/pods"


def widget(name: str = "w", spec: Any = None, **metadata: Any) -> Obj:
    return {
        "apiVersion": "test.grove.io/v1alpha1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": "small"} if spec is None else spec,
    }


def pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"containers": [{"name": "c", "image": "x:1"}], **spec},
    }


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
