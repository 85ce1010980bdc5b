"""CHANGELOG.md: unreleased changes have no version; and a version has one heading for each kind of change."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from packaging.version import Version

import horovod

ROOT = Path(__file__).resolve().parents[3]
LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()
RELEASES = [match[1] for line in LINES if (match := re.fullmatch(r"## \[(.+)\]", line))]


def test_an_unreleased_version_is_no_release() -> None:
    """Otherwise pip would treat wheels of both as equal, and install neither over the other."""
    newest = max(Version(name) for name in RELEASES if name != "Unreleased")
    version = Version(horovod.__version__)
    assert version > newest if "Unreleased" in RELEASES else version == newest
    assert version.is_devrelease == ("Unreleased" in RELEASES)


def test_each_kind_of_change_stands_together() -> None:
    release, headings = "", Counter[tuple[str, str]]()
    for line in LINES:
        release = line if line.startswith("## ") else release
        headings[release, line] += line.startswith("### ")
    assert [heading for heading, count in headings.items() if count > 1] == []
    assert {line for _, line in +headings} <= {"### Added", "### Changed", "### Fixed", "### Removed"}
