"""The fixtures of the page tests: a viewer, and a cluster whose objects are listed."""

from typing import Any

import pytest

from tests.web.conftest import _static_files, row, viewer

__all__ = ["_static_files", "row", "viewer"]


@pytest.fixture
def quick_streams(settings: Any) -> None:
    """Streams that send heartbeats and check permissions several times a second."""
    settings.FEED_HEARTBEAT_SECONDS = 0.3
    settings.FEED_RECHECK_SECONDS = 0.2
