"""The fixtures of the page tests: a viewer, and a cluster whose objects are listed."""

from tests.web.conftest import _static_files, row, viewer

__all__ = ["_static_files", "row", "viewer"]
