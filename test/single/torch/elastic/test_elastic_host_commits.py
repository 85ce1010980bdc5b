"""Commits in a host's memory: their folders, owners, removal and files."""

# private: _LOOKS_EVERY, _have_watched, _namespace, _started: a watcher that looks at once

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import busy
import pytest
import torch
from refusals import refused

from horovod.common import errors as of_common
from horovod.common import host_memory, restarting
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.host_memory import KeptFolder, began, checked, of_torchrun, remove_abandoned
from horovod.torch import errors
from horovod.torch.elastic.host_commits import HostCommits, forget_when_all_are_done, unreadable

NAMES = ["model", "step"]
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_MAX_RESTARTS": "3"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_memory, "ROOT", str(tmp_path))
    return tmp_path


def content(step: int) -> dict[str, Any]:
    model = OrderedDict(weight=torch.arange(4.0) + step)
    model._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    return {"objects": {"step": step}, "handlers": {"model": {"_saved": model}}}


def commits(folder: Path | str, state: int = 0, names: list[str] = NAMES, writes: bool = True) -> HostCommits:
    return HostCommits(str(folder), state, names, lambda: writes)


@pytest.fixture
def folder(root: Path) -> Iterator[Path]:
    kept = KeptFolder()
    yield Path(kept.path)
    kept.remove()


# ---- folders ----


def test_a_folder_is_its_users_alone_and_goes_with_its_keeper(root: Path) -> None:
    kept = KeptFolder()
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o700 and Path(kept.path).parent == root
    assert checked(kept.path) == kept.path
    remove_abandoned()
    assert os.path.isdir(kept.path), "it is kept"
    kept.remove()
    kept.remove()
    assert os.listdir(root) == []


def test_folders_of_those_that_were_killed_are_removed(root: Path) -> None:
    words = f"import os; from horovod.common import host_memory as h; h.ROOT = {str(root)!r}"
    killed = f"{words}; h.KeptFolder(); os.kill(os.getpid(), 9)"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", killed], timeout=60).returncode == -9
        assert len(os.listdir(root)) == 1, "the second has removed the first one's"
    remove_abandoned()
    assert os.listdir(root) == []


def test_a_folder_of_torchruns_lasts_as_long_as_its_agent(root: Path) -> None:
    words = f"from horovod.common import host_memory as h; h.ROOT = {str(root)!r}; print(h.of_torchrun())"
    worker = [sys.executable, "-c", words]
    agent = (
        f"import os, subprocess; told = {{**os.environ, 'TORCHELASTIC_RUN_ID': 'x', "
        f"'TORCHELASTIC_RESTART_COUNT': '0'}}; "
        f"run = lambda words: subprocess.run(words, env=told, check=True); "
        f"run({worker!r}); run({worker!r}); run(['sh', '-c', 'exec \"$@\"; exit 1', '', *{worker!r}])"
    )
    after = (
        f"; import glob; paths = [os.path.join({str(root)!r}, name) for name in os.listdir({str(root)!r})]; "
        "words = [open(each, 'rb').read().split(bytes(1)) for each in glob.glob('/proc/[0-9]*/cmdline')]; "
        "print(sum(word[-2:-1] == [paths[0].encode()] for word in words))"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TORCHELASTIC")}
    done = subprocess.run(
        [sys.executable, "-c", agent + after],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *paths, watchers = done.stdout.split("\n")[:4]
    assert len(set(paths)) == 1 and watchers == "1", done.stdout
    busy.until(lambda: not os.listdir(root) and not watchers_of(paths[0]))  # as the agent has ended


def watchers_of(path: str) -> list[str]:
    """Processes with the path as last argument."""
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            found += [process] if words[-2:-1] == [path.encode()] else []
    return found


def test_a_watcher_ends_with_its_folder(root: Path) -> None:
    started = host_memory._started(os.getpid())
    path = root / f"horovod-commits-{os.geteuid()}-by-{host_memory._namespace()}-{os.getpid()}-{started}"
    path.mkdir(mode=0o700)
    host_memory._have_watched(str(path))
    time.sleep(1.5 * host_memory._LOOKS_EVERY)
    assert path.is_dir() and len(watchers_of(str(path))) == 1, "its keeper lives"
    path.rmdir()
    busy.until(lambda: not watchers_of(str(path)))


def test_folders_of_killed_agents_of_torchrun_are_removed(root: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    started = host_memory._started(ended.pid)
    own = f"horovod-commits-{os.geteuid()}-by-{host_memory._namespace()}"
    (root / f"{own}-{ended.pid}-{started}").mkdir(mode=0o700)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    remove_abandoned()
    assert os.listdir(root) == [], "nobody has waited for the process so far, but it has ended"
    ended.wait()
    (root / f"{own}-{ended.pid}-{started}").mkdir(mode=0o700)
    remove_abandoned()
    assert os.listdir(root) == []


def test_a_folder_says_when_its_job_began(root: Path) -> None:
    before = time.time() - 0.001
    kept = KeptFolder()
    assert before <= began(kept.path) <= time.time() + 0.001
    kept.remove()
    for other in ("", "/dev/shm/x", f"{root}/horovod-commits-{os.geteuid()}-by-1-2-3"):
        with refused(of_common.not_of_horovodrun, path=other):
            began(other)


def test_what_is_not_known_to_be_abandoned_stays(root: Path) -> None:
    own = f"horovod-commits-{os.geteuid()}-"
    for name in ("other", f"{own}by-1-2-3", f"{own}by-x"):  # another namespace of processes; damaged
        (root / name).mkdir(mode=0o700)
    remove_abandoned()
    assert len(os.listdir(root)) == 3


def test_a_folder_that_others_can_enter_is_refused(root: Path) -> None:
    (root / "open").mkdir()
    os.chmod(root / "open", 0o755)
    (root / "link").symlink_to(root / "private")
    (root / "private").mkdir(mode=0o700)
    assert checked(str(root / "private"))
    for name in ("open", "link"):
        with refused(of_common.others_commits, path=str(root / name)):
            checked(str(root / name))
    with refused(of_common.unusable_commits, path=str(root / "missing")):
        checked(str(root / "missing"))


def test_without_anybody_who_starts_processes_again(root: Path) -> None:
    with refused(of_common.nobody_restarts):
        of_torchrun({})
    with refused(of_common.agent_keeps_nothing):
        restarting.folder({AGENT: "5:1:1"})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({**TORCHRUN, "TORCHELASTIC_MAX_RESTARTS": "0"}, False),
        (TORCHRUN, True),
        ({**TORCHRUN, AGENT: "5:1:1"}, False),
        ({**TORCHRUN, "HOROVOD_ELASTIC_RESTART": "0"}, False),
        ({"HOROVOD_ELASTIC_RESTART": "1"}, True),
        ({"HOROVOD_ELASTIC_RESTART": "1", AGENT: "5:1:1"}, False),
        ({AGENT: "5:1:1", host_memory.VARIABLE: ""}, True),
    ],
)
def test_when_commits_are_kept(environment: dict[str, str], expected: bool) -> None:
    assert restarting.is_on(environment) == expected


# ---- files ----


def test_the_newest_two_are_found_again(folder: Path) -> None:
    written = commits(folder)
    for number in (1, 2, 3):
        written.put(number, content(number))
    assert written.numbers == [2, 3]
    assert sorted(os.listdir(folder)) == ["commit-0-2.pt", "commit-0-3.pt"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    read = commits(folder, writes=False)
    assert read.find() and read.numbers == [2, 3]
    assert read.get(3)["objects"] == {"step": 3}
    assert torch.equal(read.get(2)["handlers"]["model"]["_saved"]["weight"], torch.arange(4.0) + 2)
    assert read.get(2)["handlers"]["model"]["_saved"]._metadata == {"": {"version": 1}}


def test_commits_that_do_not_count_any_more_are_removed(folder: Path) -> None:
    written = commits(folder)
    for number in (1, 2):
        written.put(number, content(number))
    written.forget_after(1)
    assert os.listdir(folder) == ["commit-0-1.pt"] and written.numbers == [1]


def test_one_rank_of_a_host_writes(folder: Path) -> None:
    commits(folder, writes=False).put(1, content(1))
    assert os.listdir(folder) == []


def test_states_of_a_process_are_kept_apart(folder: Path) -> None:
    commits(folder, 0).put(1, content(1))
    assert not commits(folder, 1).find() and commits(folder, 0).find()


def damaged(folder: Path) -> None:
    path = folder / "commit-0-2.pt"
    path.write_bytes(path.read_bytes()[:-40])


def overwritten(folder: Path) -> None:
    (folder / "commit-0-2.pt").write_bytes(b"\0" * 4096)


def others_may_write(folder: Path) -> None:
    os.chmod(folder / "commit-0-2.pt", 0o666)


def a_link(folder: Path) -> None:
    (folder / "commit-0-2.pt").rename(folder / "elsewhere")
    (folder / "commit-0-2.pt").symlink_to(folder / "elsewhere")


def renamed(folder: Path) -> None:
    (folder / "commit-0-1.pt").rename(folder / "commit-0-2.pt")
    commits(folder).put(1, content(1))


class Harmful:
    def __reduce__(self) -> Any:
        return (os.mkdir, (os.environ["HARM"],))


def harmful(folder: Path) -> None:
    torch.save({"version": 2, "number": 2, "names": NAMES, "content": Harmful()}, folder / "commit-0-2.pt")
    os.chmod(folder / "commit-0-2.pt", 0o600)


@pytest.mark.parametrize("spoil", [damaged, overwritten, others_may_write, a_link, renamed, harmful])
def test_what_is_no_commit_is_ignored(
    spoil: Any, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARM", str(folder / "harm"))
    written = commits(folder)
    for number in (1, 2):
        written.put(number, content(number))
    spoil(folder)
    with caplog.at_level(logging.WARNING, "horovod"):
        read = commits(folder)
        assert read.find() and read.numbers == [1]
    assert not (folder / "harm").exists()
    assert caplog.text.count("is no commit of this job, and is ignored") == 1
    caplog.clear()
    assert commits(folder).find() and not caplog.text, "it is gone"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MemoryError("no room"), MemoryError),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            MemoryError,
        ),
        (OSError(24, "Too many open files"), OSError),
    ],
)
def test_what_cannot_be_read_now_stays(
    error: Exception, raised: type[Exception], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits(folder).put(1, content(1))

    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", fails)
        with pytest.raises(raised):
            commits(folder).find()
    assert commits(folder).find()


def test_generations_are_found_again(folder: Path) -> None:
    written = commits(folder)
    for number, generation in ((11, 1), (12, 4)):
        written.generation = generation
        written.put(number, content(number))
    read = commits(folder)
    assert read.find() and read.newest_generation() == (4, [12])


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_where_nobody_asked_for_files_training_goes_on_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    held = HostCommits(str(folder), 0, NAMES, lambda: True, said.append)
    held.put(1, content(1))
    unreadable = {"objects": {"step": Harmful()}, "handlers": {}}
    held.put(2, unreadable)
    assert os.listdir(folder) == [], "an old commit would be read after a restart"
    held.put(3, content(3))
    held.forget_after(2)
    assert held.numbers == [2] and held.get(2) is unreadable
    assert len(said) == 1 and "cannot be kept" in said[0]

    held = HostCommits(str(folder), 0, NAMES, lambda: True, said.append)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        held.put(1, content(1))
    assert held.numbers == [1] and "enlarge /dev/shm" in said[1]

    held = HostCommits(str(folder / "gone"), 0, NAMES, lambda: True, said.append)
    held.put(1, content(1))
    assert held.numbers == [1] and len(said) == 3


def test_a_commit_of_another_script_is_ignored(folder: Path) -> None:
    commits(folder).put(1, content(1))
    assert not commits(folder, names=["model", "epoch"]).find()


def test_what_dead_processes_have_left_is_removed(folder: Path) -> None:
    for name in ("commit-0-7-123.part", "done-0"):
        (folder / name).write_text("")
    assert not commits(folder).find() and os.listdir(folder) == []


def test_a_value_that_could_not_be_read_is_named(folder: Path) -> None:
    bad = {"objects": {"step": 1, "more": [0, {"what": Harmful()}]}, "handlers": {}}
    with refused(errors.not_plain) as caught:
        commits(folder).put(1, bad)
    assert re.fullmatch(r"state\.more\[1\]\.what \(.*Harmful\)", caught.value.facts["where"])
    assert os.listdir(folder) == []


def test_what_is_allowed_can_be_read(folder: Path) -> None:
    values = [None, True, 3, 0.5, 1j, "ä", b"b", torch.Size([2]), torch.bfloat16, torch.device("cpu")]
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.half))
    more = {"list": values, "tuple": (1, [2]), "set": {1, 2}, 3: parameter}
    assert list(unreadable(more, "state")) == []
    whole = {"objects": more, "handlers": {}}
    commits(folder).put(1, whole)
    read = commits(folder)
    assert read.find()
    found = read.get(1)["objects"]
    assert found["list"] == values and found["tuple"] == (1, [2]) and found["set"] == {1, 2}
    assert torch.equal(found[3], more[3])  # type: ignore[arg-type]


def test_a_full_memory_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", full)
    with refused(errors.commit_not_kept, number=1, path=str(folder)):
        commits(folder).put(1, content(1))
    assert os.listdir(folder) == []


def test_the_last_rank_of_a_host_removes_what_nobody_else_would(folder: Path) -> None:
    commits(folder).put(1, content(1))
    forget_when_all_are_done(str(folder), 1, 2)
    assert folder.exists()
    forget_when_all_are_done(str(folder), 0, 2)
    assert not folder.exists()
    forget_when_all_are_done(str(folder), 0, 2)
