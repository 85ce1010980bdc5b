""".github/workflows/ci.yml: what it runs exists, and in the image it runs what test/container runs there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "test" / "container"), str(ROOT / "scripts")]
import commands  # noqa: E402 -- of that folder
import make_wheels  # noqa: E402
import test_wheel  # noqa: E402

TEXT = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
# YAML 1.1 reads the key `on` as true.
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
IN_THE_IMAGE = "docker run --rm --shm-size=1g horovod "
TYPED = {text for name, text in vars(commands).items() if name.isupper()}


def steps() -> list[dict[str, Any]]:
    return [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def lines() -> list[str]:
    return [line for step in steps() if "run" in step for line in step["run"].splitlines()]


def test_each_line_is_something_that_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    kinds = set()
    for line in lines():
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
    assert [line for line in lines() if line.startswith("docker build")] == ["docker build -t horovod ."]


def test_in_the_image_it_runs_what_test_container_runs() -> None:
    runs = [line for line in lines() if line.startswith("docker run")]
    assert all(line.startswith(IN_THE_IMAGE) for line in runs), runs
    typed = {line.removeprefix(IN_THE_IMAGE) for line in runs}
    assert typed <= TYPED, typed - TYPED
    assert {commands.TRAIN, commands.ALL_TESTS} <= typed
    for test in re.findall(r"sources/(\S+?\.py)", " ".join(TYPED)):
        assert (ROOT / test).is_file(), test


def test_it_may_do_little_and_not_for_ever() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is True
    for name, job in WORKFLOW["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name
        assert "permissions" not in job, name
    assert "secrets." not in TEXT
    assert "pull_request_target" not in TEXT


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code; the comment behind it says which version the commit is."""
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action), action
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", TEXT, re.MULTILINE)) == len(used)


NIGHTLY = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
WHEELS = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()


def test_a_tag_builds_wheels_with_scripts_that_exist() -> None:
    """What make_wheels.py sets for a build, the workflow sets too; only the container differs."""
    workflow: dict[Any, Any] = yaml.safe_load(WHEELS)
    assert workflow[True] == {"push": {"tags": ["v*"]}, "workflow_dispatch": None}
    assert workflow["permissions"] == {"contents": "read"} and "secrets." not in WHEELS
    assert set(workflow["jobs"]) == {"sdist", "wheels", "release"}
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    job = workflow["jobs"]["wheels"]
    for script in re.findall(r"python3 (\S+\.py)", WHEELS):
        assert (ROOT / script).is_file(), script
    assert (ROOT / "build_support" / "release.cfg").is_file() and "/build_support/release.cfg" in WHEELS
    (build,) = [step for step in job["steps"] if "cibuildwheel" in step.get("run", "")]
    said = build["env"]["CIBW_ENVIRONMENT"]
    for name in (
        "HOROVOD_MPI=any",
        "HOROVOD_WITH_CUDA=1",
        f"HOROVOD_BUILD_CUDA_CC_LIST={','.join(map(str, make_wheels.GPUS))} ",
        "HOROVOD_MPI_HEADERS=",
        "HOROVOD_STABLE_ABI=",
        "DIST_EXTRA_CONFIG=",
        "SOURCE_DATE_EPOCH=",
    ):
        assert name in said, name


def test_a_tag_publishes_what_has_been_looked_at() -> None:
    """Only the job that makes the release may write, and it runs after all others, for a tag."""
    jobs = yaml.safe_load(WHEELS)["jobs"]
    release = jobs.pop("release")
    assert all("permissions" not in job for job in jobs.values())
    assert set(release["needs"]) == set(jobs) and release["if"] == "github.ref_type == 'tag'"
    assert release["permissions"] == {"contents": "write"}
    _, create = release["steps"]
    assert shlex.split(create["run"])[:3] == ["gh", "release", "create"] and "--verify-tag" in create["run"]
    *_, build, looked_at, upload = jobs["wheels"]["steps"]
    words = shlex.split(looked_at["run"])
    assert words[:3] == ["python3", "scripts/wheel_content.py", "dist"] and "--tag" in words
    assert "horovodrun --check-build" in build["env"]["CIBW_TEST_COMMAND"]
    assert upload["with"]["path"] == build["run"].split()[-1] == "dist"


def test_actions_that_build_wheels_are_pinned_too() -> None:
    for text in (WHEELS, NIGHTLY):
        used = re.findall(r"uses: (\S+)", text)
        assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in used)
        assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", text, re.MULTILINE)) == len(used)


def test_at_night_one_wheel_meets_the_oldest_and_the_newest_torch() -> None:
    workflow: dict[Any, Any] = yaml.safe_load(NIGHTLY)
    assert workflow["permissions"] == {"contents": "read"} and "secrets." not in NIGHTLY
    (job,) = workflow["jobs"].values()
    assert 0 < job["timeout-minutes"] <= 60
    rows = {(row["python"], row["torch"]) for row in job["strategy"]["matrix"]["include"]}
    assert rows == {("3.11", "2.4.1"), ("3.13", "newest")}
    scripts = re.findall(r"(?:python3|\}) (scripts/\S+\.py)", NIGHTLY)
    assert scripts == ["scripts/make_wheels.py", "scripts/test_wheel.py"]
    assert all((ROOT / script).is_file() for script in scripts)


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
