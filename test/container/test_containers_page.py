"""Every command of docs/containers.md is run: buildah replaces Docker, made hosts replace machines.

A `docker run` line must be valid for Docker, and its command is run in the image. `image.Image` runs builds;
the build arguments on the page must be the Dockerfile's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import commands
import page_blocks
import pytest
import yaml
from image import ROOT, Container, Image
from pods import Pods

from horovod import made_hosts

pytestmark = pytest.mark.timeout(5400)

PAGE = (ROOT / "docs" / "containers.md").read_text()
LINES = page_blocks.commands("docs/containers.md")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TYPED = {text for name, text in vars(commands).items() if name.isupper()}
RUN_OPTIONS = {"--rm": 0, "-d": 0, "--network": 1, "-v": 1, "--shm-size=1g": 0}  # option -> its values
BY_OTHERS = {"make image": "test/single/house/test_build_image.py"}


def of(*words: str) -> list[str]:
    return [line for line in LINES if tuple(shlex.split(line)[: len(words)]) == words]


def command_of(line: str) -> str:
    """Return the command that a `docker run` line runs in the image, after options that Docker has."""
    words = shlex.split(line)[2:]
    while words[0] != "horovod":
        assert words[0] in RUN_OPTIONS, line
        words = words[1 + RUN_OPTIONS[words[0]] :]
    return line.partition(" horovod ")[2]


def in_pods() -> list[str]:
    return [line for line in of("docker", "run") if "--network host" in line]


def test_the_quick_tests_are_there() -> None:
    words = [word.removeprefix("sources/") for word in shlex.split(commands.QUICK_TESTS)[2:]]
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout + collected.stderr


def test_no_command_is_left_out() -> None:
    known = [*of("docker", "build"), *of("docker", "run"), *of("buildah"), *job_folder(), *BY_OTHERS]
    assert set(LINES) == set(known)
    for test in BY_OTHERS.values():
        assert (ROOT / test).is_file()


@pytest.mark.parametrize("line", of("docker", "build"))
def test_a_build(line: str) -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))
    words = shlex.split(line)[2:]
    assert words.pop() == "."
    for option, value in zip(words[::2], words[1::2], strict=True):
        assert option in ("-t", "--build-arg"), line
        assert option == "-t" or value.partition("=")[0] in arguments, line


def test_the_table_of_arguments_is_that_of_the_dockerfile() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", PAGE, re.MULTILINE))
    assert rows.pop("TORCH_INDEX") == "PyTorch's own"
    assert rows == {name: f"`{arguments[name]}`" for name in rows}
    assert set(arguments) - set(rows) == {"TORCH_INDEX", "VERSION", "REVISION"}


@pytest.mark.parametrize("line", [line for line in of("docker", "run") if line not in in_pods()])
def test_a_run_is_one_of_those_in_test_image(line: str) -> None:
    assert command_of(line) in TYPED


def job_folder() -> list[str]:
    return [line for line in LINES if re.match(r"mkdir|ssh-keygen|cp |sudo chown", line)]


def test_containers_on_two_machines(image: Image, container: Container, tmp_path: Path) -> None:
    reason = made_hosts.why_not()
    if reason:
        pytest.skip(reason)
    script = "\n".join(["set -e", *job_folder()]).replace("sudo ", "")  # the test runs as root
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)
    server, job = map(command_of, in_pods())
    assert server == commands.SSHD
    manifest = yaml.safe_load((ROOT / "deploy" / "kubeflow" / "mpijob.yaml").read_text())
    variables = image.description()["Env"]
    with Pods(manifest, container.files(), variables, secret=tmp_path / "job") as pods:
        done = pods.run(0, shlex.split(job.replace("node", "pod")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[0]<stdout>:parameters     bit-identical on 4 rank(s)" in done.stdout


def test_buildah_as_documented(image: Image, tmp_path: Path) -> None:
    """The image is in our storage, under the name that the page gives it."""
    settings = (
        f'[storage]\ndriver = "overlay"\ngraphroot = "{image.folder}/root"\nrunroot = "{image.folder}/run"\n'
    )
    (tmp_path / "storage.conf").write_text(settings)
    environment = os.environ | {
        "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
    }
    for line in of("buildah"):
        done = subprocess.run(
            ["bash", "-c", line],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}"
        assert ("[X] PyTorch" in done.stdout) == ("--check-build" in line)
