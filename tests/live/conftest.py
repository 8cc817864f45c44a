"""A viewer and a listed cluster, as the pages have them."""

from tests.web.conftest import _static_files, row, viewer

__all__ = ["_static_files", "row", "viewer"]
