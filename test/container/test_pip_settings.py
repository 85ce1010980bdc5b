"""The settings of this machine's pip that a pip in the image receives, if the machine has any."""

from __future__ import annotations

from pathlib import Path

import pip_settings

LISTED = """:env:.find-links='{0}/wheels'
:env:.disable-pip-version-check='1'
global.cert='{0}/ca.crt'
global.extra-index-url='file://{0}/with%20blank/simple https://user:word@host/simple'
global.find-links='/from/the/file'
install.user='no'
"""


def test_settings_and_the_folders_that_they_name(tmp_path: Path) -> None:
    for folder in ("wheels", "with blank/simple"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ca.crt").touch()
    settings = pip_settings.parsed(LISTED.format(tmp_path))
    assert settings["find-links"] == f"{tmp_path}/wheels"  # the environment beats files
    assert pip_settings.folders(settings) == [tmp_path / "wheels", tmp_path / "with blank"]
    assert pip_settings.certificates(settings, {}) == tmp_path / "ca.crt"
    assert pip_settings.text(settings, "/run/ca.crt").splitlines() == [
        "[global]",
        f"extra-index-url = file://{tmp_path}/with%20blank/simple",
        "    https://user:word@host/simple",
        f"find-links = {tmp_path}/wheels",
        "cert = /run/ca.crt",
    ]


def test_a_machine_without_settings(tmp_path: Path) -> None:
    settings = pip_settings.parsed("")
    assert pip_settings.folders(settings) == []
    assert pip_settings.text(settings, "") == "[global]\n"
    named = pip_settings.certificates({}, {"SSL_CERT_FILE": str(tmp_path / "absent")})
    assert named in (None, pip_settings.CERTIFICATES)
