"""Where pip of this machine finds packages, for a pip in the image: one file, and the folders that it names.

Nothing of it gets into the image: the file and the folders are there, read-only, while it is built.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

# What says where packages come from and how they are reached; the rest is this machine's own business.
SOURCES = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "trusted-host",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
)
_LINE = re.compile(r"([^=]+?)=(['\"].*)")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def configured() -> dict[str, str]:
    """The settings of pip.conf files and PIP_ variables, by name; a variable beats a file, as for pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return parsed(listed)


def parsed(listed: str) -> dict[str, str]:
    """What `pip config list` printed. Sections, as global and install, come before the environment."""
    found: dict[int, dict[str, str]] = {0: {}, 1: {}}
    for line in listed.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            section, _, name = match[1].rpartition(".")
            found[section == ":env:"][name] = str(ast.literal_eval(match[2]))
    return {**found[0], **found[1]}


def folders(settings: Mapping[str, str]) -> list[Path]:
    """The folders of this machine that the settings name, as a path or as file://, without repetition.

    The pages of an index in .../simple refer to files beside that folder, so the folder above it is meant.
    """
    found = [path.parent if path.name == "simple" else path for path in _paths(settings)]
    return sorted({path for path in found if path.is_dir()})


def _paths(settings: Mapping[str, str]) -> Iterator[Path]:
    for name in ("index-url", "extra-index-url", "find-links"):
        for word in settings.get(name, "").split():
            if word.startswith("file:"):
                yield Path(unquote(urlparse(word).path))
            elif word.startswith("/"):
                yield Path(word)


def certificates(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Path | None:
    """The bundle of authorities by which this machine knows the servers that it downloads from, if any."""
    named = [settings.get("cert"), environment.get("SSL_CERT_FILE"), str(CERTIFICATES)]
    return next((Path(text) for text in named if text and Path(text).is_file()), None)


def text(settings: Mapping[str, str], certificates_there: str) -> str:
    """A pip.conf of the settings that say where packages come from; "" for no certificates."""
    lines = ["[global]"]
    for name in SOURCES:
        if name in settings:
            lines.append(f"{name} = " + "\n    ".join(settings[name].split()))
    if certificates_there:
        lines.append(f"cert = {certificates_there}")
    return "\n".join(lines) + "\n"
