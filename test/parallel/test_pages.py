"""Every command and all Python on the pages run as their metadata says (page_runs.py), or in other tests."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import busy
import launching
import page_runs
import pytest
import typed
from example_runs import real_mnist
from gpu_jobs import emulated_gpus
from page_blocks import ROOT, blocks_of, commands, text_of
from page_runs import Run, listed, metadata, pages, runs_of

from horovod import made_hosts
from horovod.runner import launchers
from horovod.runner.errors import LaunchError

RUNNABLE = re.compile(r"^ *(?:```|~~~)(?:sh|bash|shell|console|python|py)\b", re.MULTILINE)


def with_blocks() -> list[str]:
    return [page for page in pages() if RUNNABLE.search(text_of(page))]


@pytest.mark.quick
@pytest.mark.parametrize("page", pages())
def test_nothing_on_a_page_is_left_out(page: str) -> None:
    data = metadata(page)
    assert (page in with_blocks()) == bool(data), "pages with commands or Python say how they are run"
    if others := data.get("same as"):
        known = [block.body for other in others for block in blocks_of(other)]
        lines = {line for body in known for line in body.splitlines()}
        for kind, body, *_ in blocks_of(page):
            assert body in known if kind == "python" else lines.issuperset(body.splitlines()), body
        return
    typed_there = "\n".join(run.command for run in runs_of(page)).splitlines()
    assert [line for line in commands(page) if line not in typed_there] == [], "no run has these commands"
    code = {block.line for block in blocks_of(page) if block.language == "python"}
    assert code == page_runs.python_used(page), "Python at these lines is not run"


@pytest.mark.quick
@pytest.mark.parametrize("page", with_blocks())
def test_what_others_run_is_run_there(page: str) -> None:
    """A test that runs a command names the command or the page, unless the metadata gives a reason."""
    data = metadata(page)
    runs = [run for run in runs_of(page) if "by" in run.row] if "same as" not in data else []
    named = [(test, [], "") for test in data.get("python", {})]
    named += [
        (test, [run.command.strip()], run.says("because", ""))
        for run in runs
        for test in listed(run.row["by"])
    ]
    for test, commands_, reason in named:
        paths = [ROOT / test] if "/" in test or "." not in test else list((ROOT / "test").rglob(test))
        text = "".join(path.read_text(encoding="utf-8") for path in paths)
        assert text, f"there is no {test}"
        assert reason or any(each in text for each in [page.removeprefix("docs/"), *commands_]), (
            test,
            commands_,
        )


def missing(run: Run, line: str) -> str:
    """Return why it cannot be run here; "" if it can."""
    needs = listed(run.says("needs"))
    if re.search(r"\bmpirun\b|--launcher mpi", line):
        try:
            launchers.installed_mpirun()
        except LaunchError as error:
            return f"no mpirun: {error}"
    if "mnist" in needs and real_mnist() is None:
        return "no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist"
    if "hosts" in needs and (reason := made_hosts.why_not()):
        return reason
    for module in needs:
        if module not in ("mnist", "hosts") and importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return ""


def variables(run: Run, folder: Path) -> dict[str, str]:
    more = {name: page_runs.with_places(str(text), folder) for name, text in run.says("env", {}).items()}
    if "mnist" in listed(run.says("needs")):
        more["MNIST_DATA_DIR"] = str(real_mnist())
    if re.search(r"\bmpirun\b", run.line):
        program = Path(launchers.installed_mpirun()).parent
        more["PATH"] = os.pathsep.join([str(program), launching.environment("")["PATH"]])
        more["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        more["PRTE_MCA_hwloc_default_binding_policy"] = "none"
        more |= dict.fromkeys(
            (f"{mpi}_ALLOW_RUN_AS_ROOT{end}" for mpi in ("OMPI", "PRTE") for end in ("", "_CONFIRM")), "1"
        )
    if run.says("gpu"):
        more |= emulated_gpus()
    return more


@pytest.mark.parametrize("runs", page_runs.together("here"))
def test_a_run(runs: list[Run], tmp_path: Path) -> None:
    run = runs[0]
    line = page_runs.with_places(run.line, tmp_path)
    if reason := missing(run, line):
        pytest.skip(reason)
    page_runs.write(run, tmp_path)
    if run.says("gpu"):
        line = line.replace("python ", f"python {Path(__file__).parent / 'emulated_run.py'} ")
    limit = max(run.says("limit", 100) for run in runs) * busy.times_longer()
    mark = launching.fresh_mark()
    done = typed.run(
        line,
        tmp_path,
        limit=limit,
        mark=mark,
        imports_from_it=run.says("imports", False),
        **variables(run, tmp_path),
    )
    for run in runs:
        page_runs.check(run, done.returncode, done.stdout, done.stderr, tmp_path)
    launching.all_end(mark, 20)  # a process that polls frees a host's commits


WRONG: list[dict[str, Any]] = [
    *({"exit": 1}, {"exit": "fails"}, {"prints": "gain"}, {"prints": {"loss": 2}}, {"never": "loss"}),
    *({"only": "loss"}, {"says": "0:0"}, {"shown": 0}, {"exactly": 0, "near": 0.1}, {"leaves": ["file"]}),
    *({"like": 0, "prints": "loss"}, {"alike": ["loss (.*)", 0.1, 0.1]}, {"writes": {"said": "loss"}}),
    *({"draws": {"said": "README.md"}}, {"blocks": True}),
]


@pytest.mark.quick
@pytest.mark.parametrize("row", WRONG, ids=repr)
def test_output_that_is_not_as_said_is_found(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "said").touch()
    ended = (0, f"{page_runs.MARK} 0\nloss 0.5\n", "", tmp_path)
    page_runs.check(Run("README.md", "", "", (), {"prints": "loss", "never": "gain"}), *ended)
    with pytest.raises(AssertionError):
        page_runs.check(Run("README.md", "", "", (), row), *ended)
