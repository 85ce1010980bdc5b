""".github/workflows/ci.yml runs scripts that exist, and in the image the same steps as test/container."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "test" / "container"), str(ROOT / "scripts")]
import commands  # noqa: E402 -- of that folder
import make_wheels  # noqa: E402
import test_wheel  # noqa: E402

WORKFLOWS: dict[str, dict[Any, Any]] = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
IN_THE_IMAGE = "docker run --rm --shm-size=1g horovod "
TYPED = {text for name, text in vars(commands).items() if name.isupper()}


def lines(workflow: str) -> list[str]:
    steps = [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]
    return [line for step in steps for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_it_may_do_little_and_not_for_ever(name: str) -> None:
    """Only the job that makes a release may write. (test_words.py: no secrets, and actions pinned.)"""
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    assert {each for each, job in workflow["jobs"].items() if "permissions" in job} <= {"release"}
    assert name != "ci" or workflow["concurrency"]["cancel-in-progress"] is True
    for script in re.findall(r"(?:python3|\} ) ?(scripts/\S+\.py)", "\n".join(lines(name))):
        assert (ROOT / script).is_file(), script


def test_each_line_is_something_that_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    kinds = set()
    for line in lines("ci"):
        words = shlex.split(line)
        if words[0] == "sudo":
            words = words[3:] if words[1:3] == ["env", "PATH=$PATH"] else words[1:]
        kinds.add(words[0])
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), line
        elif words[0] == "bash":
            assert (ROOT / words[1]).is_file(), line
        else:
            assert words[:2] in (["docker", "build"], ["docker", "run"]), line
    assert kinds == {"make", "bash", "docker"}


def test_the_image_is_built_as_a_person_builds_it() -> None:
    assert [line for line in lines("ci") if line.startswith("docker build")] == ["docker build -t horovod ."]


def test_in_the_image_it_runs_what_test_container_runs() -> None:
    runs = [line for line in lines("ci") if line.startswith("docker run")]
    assert all(line.startswith(IN_THE_IMAGE) for line in runs), runs
    typed = {line.removeprefix(IN_THE_IMAGE) for line in runs}
    assert typed <= TYPED, typed - TYPED
    assert {commands.TRAIN, commands.ALL_TESTS} <= typed
    for test in re.findall(r"sources/(\S+?\.py)", " ".join(TYPED)):
        assert (ROOT / test).is_file(), test


def test_a_tag_builds_wheels() -> None:
    """The workflow sets the same variables as make_wheels.py; only the container differs."""
    workflow = WORKFLOWS["wheels"]
    assert workflow[True] == {
        "push": {"tags": ["v*"]},
        "workflow_dispatch": None,
    }  # YAML 1.1's `on`
    (build,) = [step for step in workflow["jobs"]["wheels"]["steps"] if "cibuildwheel" in step.get("run", "")]
    said = build["env"]["CIBW_ENVIRONMENT"]
    assert (ROOT / "build_support" / "release.cfg").is_file() and "/build_support/release.cfg" in said
    gpus = f"HOROVOD_BUILD_CUDA_CC_LIST={','.join(map(str, make_wheels.GPUS))} "
    values = ("HOROVOD_MPI=any", "HOROVOD_WITH_CUDA=1", gpus)
    names = ("HOROVOD_MPI_HEADERS=", "HOROVOD_STABLE_ABI=", "DIST_EXTRA_CONFIG=", "SOURCE_DATE_EPOCH=")
    for name in (*values, *names):
        assert name in said, name


def test_a_tag_publishes_what_has_been_looked_at() -> None:
    """The release is made after all others, for a tag."""
    jobs = dict(WORKFLOWS["wheels"]["jobs"])
    assert set(jobs) == {"sdist", "wheels", "release"}
    release = jobs.pop("release")
    assert set(release["needs"]) == set(jobs) and release["if"] == "github.ref_type == 'tag'"
    assert release["permissions"] == {"contents": "write"}
    _, create = release["steps"]
    assert shlex.split(create["run"])[:3] == ["gh", "release", "create"] and "--verify-tag" in create["run"]
    *_, build, looked_at, upload = jobs["wheels"]["steps"]
    words = shlex.split(looked_at["run"])
    assert words[:3] == ["python3", "scripts/wheel_content.py", "dist"] and "--tag" in words
    assert "horovodrun --check-build" in build["env"]["CIBW_TEST_COMMAND"]
    assert upload["with"]["path"] == build["run"].split()[-1] == "dist"


def test_a_wheel_is_tested_as_the_sources_are() -> None:
    """scripts/test_wheel.py runs what the Makefile's `test` runs."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\ntest: ")[2].partition("\n\n")[0]
    abreast = re.search(r"^ABREAST := (.+)$", makefile, re.MULTILINE)
    assert abreast
    runs = re.findall(r"\$\(PYTEST\) (.+?) \|\|", recipe)
    assert [run.replace("$(ABREAST)", abreast[1]) for run in runs] == list(test_wheel.TIERS)
    for name in test_wheel.OF_SOURCES:
        assert (ROOT / "test" / "single" / name).is_file(), name
