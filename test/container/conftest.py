"""One image for all tests here, built from this tree; tests are skipped with the reason if it cannot be.

They are slow, because the build takes eight minutes: `make test-nightly` runs them. On every change, the job
`image` of .github/workflows/ci.yml builds and runs the image with Docker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from image import Container, Image, why_not

SAID: list[str] = []  # printed at the end, even if the output is captured


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Image() as built:
        began = time.monotonic()
        built.build(["--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abc"])
        SAID.append(f"built in {time.monotonic() - began:.0f} s")
        yield built
        SAID.append(f"removed {time.monotonic() - began:.0f} s after that began")


@pytest.fixture(scope="session")
def container(image: Image) -> Container:
    return image.container()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SAID:
        terminalreporter.write_line(f"the image of the Dockerfile: {', '.join(SAID)}")
