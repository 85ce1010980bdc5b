"""The progress display while a lab's runs are being done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rich.progress
from lab_samples import sample_runs

from horovod.lab import progress

PLAN = sample_runs(Path("/lab"))[0].plan


def record(step: int, epoch: int = 1, **more: Any) -> dict[str, Any]:
    return {"event": "step", "epoch": epoch, "step": step, "steps": 100, **more}


def test_where_a_run_is() -> None:
    assert progress.state(record(40), 3) == "epoch 1/3  step 40/100"
    said = progress.state(record(40, loss=0.33671, accuracy=0.9056), 3)
    assert said == "epoch 1/3  step 40/100  loss 0.3367  accuracy 90.6%"
    assert progress.state(record(7, loss=2, accuracy=1), 1).endswith("loss 2.0000  accuracy 100.0%")
    assert progress.state(record(7, loss="nan", accuracy=10**400), 1) == "epoch 1/1  step 7/100"


def test_how_many_steps_are_done() -> None:
    assert progress.steps_done(record(40, epoch=2), 3) == (140, 300)
    assert progress.steps_done({"epoch": 1, "step": "40", "steps": 100}, 3) is None


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = progress.GrowingLog(path)
    assert log.news() == []
    first, second = json.dumps(record(1)), json.dumps(record(2))
    path.write_text(f'{first}\nnonsense\n{{"event": "epoch"}}\n[1]\n{second[:10]}')
    assert log.news() == [record(1)]
    assert log.news() == []
    with path.open("a") as file:
        file.write(f"{second[10:]}\n")
    assert log.news() == [record(2)]


def test_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    total = 100 * PLAN.epochs
    with progress.Lines().run("bit8", PLAN) as stepped:
        for step, clock[0] in ((10, 101.0), (20, 109.9), (30, 110.0), (40, 119.9), (60, 121.0)):
            stepped(record(step))
    # 20 steps in 9 s; 50 in 20.
    first = f"  epoch 1/{PLAN.epochs}  step 30/100  about {0.45 * (total - 30):.0f} s left"
    second = f"  epoch 1/{PLAN.epochs}  step 60/100  about {0.4 * (total - 60):.0f} s left"
    assert capsys.readouterr().out.splitlines() == ["bit8", first, second]


def test_a_bar_has_the_steps_of_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(rich.progress.Progress, "update", lambda self, task, **what: seen.append(what))
    with progress.Bars().run("bit8", PLAN) as stepped:
        stepped(record(40))
        stepped({"event": "step"})
    assert (seen[0]["completed"], seen[0]["total"]) == (40, 100 * PLAN.epochs)
    assert "step 40/100" in seen[0]["state"] and (seen[1]["completed"], seen[1]["total"]) == (0, None)


def test_a_terminal_has_bars_and_a_file_has_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(progress.display(), progress.Lines)
    monkeypatch.setattr(progress.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = progress.display()
    assert isinstance(shown, progress.Bars)
    with shown.run("bit8 [2 of 3]", PLAN) as stepped:
        stepped(record(40))
        shown.say("np2-[bold]none[/bold]: done")
    said = capsys.readouterr().out
    assert "np2-[bold]none[/bold]: done\n" in said  # a name is not parsed as markup
    assert "bit8 [2 of 3]" in said and "step 40/100" in said
