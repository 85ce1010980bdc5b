"""Fixtures for tests of the build: a copy of the sources, and one build of it."""

from pathlib import Path

import pytest
from clean_shell import TEXTBOOK, copy_sources, typed


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("horovod"))


@pytest.fixture(scope="session")
def textbook_build(sources: Path) -> tuple[Path, str]:
    """The folder to put on PYTHONPATH after the textbook command, and the command's output."""
    said = typed(TEXTBOOK, sources)
    (library,) = (sources / "build").glob("lib.*")
    return library, said
