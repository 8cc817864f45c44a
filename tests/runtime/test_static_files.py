"""The first start collects the static files; later ones only if a source file has changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

from rollouts.runtime.static_files import collect_static_files


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """The only static file of an installation where nothing was collected yet."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "page.css").write_text("a {}")
    data = {"DATA_DIR": tmp_path, "STATIC_ROOT": tmp_path / "static", "STATICFILES_DIRS": [folder]}
    only_ours = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    with override_settings(**data, STATICFILES_FINDERS=only_ours):
        yield folder / "page.css"


def collected() -> set[str]:
    """Return the collected files of the source, by name."""
    return {path.name for path in Path(settings.STATIC_ROOT).glob("page.*.css")}


def test_a_second_start_collects_nothing(source: Path) -> None:
    assert collect_static_files()
    assert len(collected()) == 1
    assert not collect_static_files()


def test_a_changed_source_is_collected_again(source: Path) -> None:
    collect_static_files()
    source.write_text("a { color: red }")
    assert collect_static_files()
    assert len(collected()) == 2


def test_another_source_is_collected_too(source: Path) -> None:
    collect_static_files()
    source.with_name("other.css").write_text("b {}")
    assert collect_static_files()
    assert list(Path(settings.STATIC_ROOT).glob("other.*.css"))


def test_what_was_removed_is_collected_again(source: Path) -> None:
    collect_static_files()
    for path in Path(settings.STATIC_ROOT).iterdir():
        path.unlink()
    assert collect_static_files()
    assert len(collected()) == 1
