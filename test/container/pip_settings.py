"""The packages' source of this machine's pip, for a pip in the image: one file, and the folders it names.

They are mounted read-only during the build, and nothing of them gets into the image.
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

# Settings about the source of packages and the way to reach it; other settings are not copied.
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
    """Return the settings of pip.conf files and PIP_ variables, by name; a variable wins, as in pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return parsed(listed)


def parsed(listed: str) -> dict[str, str]:
    """Parse the output of `pip config list`. Sections (global, install) come before the environment."""
    found: dict[int, dict[str, str]] = {0: {}, 1: {}}
    for line in listed.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            section, _, name = match[1].rpartition(".")
            found[section == ":env:"][name] = str(ast.literal_eval(match[2]))
    return {**found[0], **found[1]}


def folders(settings: Mapping[str, str]) -> list[Path]:
    """Return the folders of this machine that the settings name, as paths or file://, without repetition.

    An index in .../simple refers to files beside that folder, so the folder above it counts.
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
    """Return the certificate bundle by which this machine knows the servers of its downloads, if any."""
    named = [settings.get("cert"), environment.get("SSL_CERT_FILE"), str(CERTIFICATES)]
    return next((Path(text) for text in named if text and Path(text).is_file()), None)


def text(settings: Mapping[str, str], certificates_there: str) -> str:
    """Return a pip.conf with the settings about the source of packages; "" for no certificates."""
    lines = ["[global]"]
    for name in SOURCES:
        if name in settings:
            lines.append(f"{name} = " + "\n    ".join(settings[name].split()))
    if certificates_there:
        lines.append(f"cert = {certificates_there}")
    return "\n".join(lines) + "\n"
