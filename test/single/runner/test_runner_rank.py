"""The wrapper around each rank, and what horovodrun makes of its cells and reports."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import busy
import pytest

from horovod.runner import rank as wrapper
from horovod.runner.outcome import Outcome
from horovod.runner.output import Cell, Decoder
from horovod.runner.processes import send

NONCE = "0123456789ab"


def start(*command: str, directory: str = "/", **environment: str) -> subprocess.Popen[bytes]:
    own = {**os.environ, "OMPI_COMM_WORLD_RANK": "3", **environment}
    line = [sys.executable, "-I", "-S", wrapper.__file__, NONCE, directory, *command]
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=own)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes, list[str]]:
    """(exit code, standard output, standard error, reports without the first)."""
    assert process.stderr is not None
    written = process.stderr.read()
    parts = list(Decoder(NONCE).feed(written))
    cells = [part for part in parts if isinstance(part, Cell)]
    assert cells and len(cells) == len(parts), written
    assert {cell.rank for cell in cells} == {3}
    text = {kind: b"".join(cell.payload for cell in cells if cell.kind == kind) for kind in (b"O", b"E")}
    reports = [cell.payload.decode() for cell in cells if cell.kind == b"R"]
    assert reports[0].startswith("started ")
    return process.wait(timeout=20), text[b"O"], text[b"E"], reports[1:]


def shell(script: str, **environment: str) -> tuple[int, bytes, bytes, list[str]]:
    return finish(start("sh", "-c", script, **environment))


def test_exit_code_and_output() -> None:
    assert shell("echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n", ["ended 3 0"])
    assert shell("true") == (0, b"", b"", ["ended 0 0"])


def test_death_by_signal() -> None:
    assert shell("kill -9 $$") == (137, b"", b"", ["killed 9 0"])
    assert shell("kill -SEGV $$")[3] == ["killed 11 0"]


def test_any_bytes_survive() -> None:
    data = bytes(range(256)) * 1000 + b"\r\n\n\x1e\n\r no newline at the end"
    code = f"import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000 + {data[256000:]!r})"
    assert finish(start(sys.executable, "-c", code))[1] == data


def test_a_command_that_cannot_run(tmp_path: Path) -> None:
    code, _, _, reports = finish(start("no-such-command-here"))
    assert code == 127 and reports[0].startswith("refused 127 the command no-such-command-here was not found")
    plain = tmp_path / "plain"
    plain.write_text("x")
    code, _, _, reports = finish(start(str(plain)))
    assert code == 126 and "may not be executed" in reports[0]
    code, _, _, reports = finish(start("true", directory=str(tmp_path / "gone")))
    assert code == 127 and "gone does not exist" in reports[0]


def test_the_rank_starts_in_the_directory(tmp_path: Path) -> None:
    assert finish(start("pwd", directory=str(tmp_path)))[1] == f"{tmp_path.resolve()}\n".encode()


def test_yielding_only_where_ranks_exceed_cores() -> None:
    ask = "echo $OMPI_MCA_mpi_yield_when_idle"
    cores = len(os.sched_getaffinity(0))
    assert shell(ask, OMPI_COMM_WORLD_LOCAL_SIZE=str(cores))[1] == b"\n"
    assert shell(ask, OMPI_COMM_WORLD_LOCAL_SIZE=str(cores + 1))[1] == b"1\n"
    assert (
        shell(ask, OMPI_COMM_WORLD_LOCAL_SIZE=str(cores + 1), OMPI_MCA_mpi_yield_when_idle="0")[1] == b"0\n"
    )


def test_being_told_to_end_is_passed_on_and_said() -> None:
    process = start("sh", "-c", "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stderr is not None
    written = b""
    while b"ready" not in written:
        written += os.read(process.stderr.fileno(), 65536)
    process.terminate()
    code, out, _, reports = finish_after(process, written)
    assert (code, out, reports[1:]) == (5, b"ready\ntold\n", ["ended 5 1"])


def finish_after(process: subprocess.Popen[bytes], written: bytes) -> tuple[int, bytes, bytes, list[str]]:
    assert process.stderr is not None
    cells = [c for c in Decoder(NONCE).feed(written + process.stderr.read()) if isinstance(c, Cell)]
    out = b"".join(c.payload for c in cells if c.kind == b"O")
    return process.wait(timeout=20), out, b"", [c.payload.decode() for c in cells if c.kind == b"R"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_for_end(pid: int) -> None:
    deadline = busy.limit(10)
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_what_the_rank_left_behind_is_ended() -> None:
    code, out, _, reports = shell("setsid sleep 300 & echo $!")
    assert (code, reports) == (0, ["ended 0 0"])
    wait_for_end(int(out))


def test_what_it_says_when_it_is_ended_is_passed_on(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    left = f"(trap 'echo bye; exit' TERM; echo >{ready}; sleep 300 & wait) &"
    assert shell(f"{left} read x <{ready}") == (0, b"bye\n", b"", ["ended 0 0"])


@pytest.mark.parametrize(
    ("local_rank", "local_size", "size", "beats"), [(0, 1, 2, True), (1, 2, 4, False), (0, 2, 2, False)]
)
def test_one_rank_of_each_host_gives_signs_of_life_where_there_are_several(
    local_rank: int, local_size: int, size: int, beats: bool
) -> None:
    often = f"""
import sys
from horovod.runner import rank
rank.BEAT = 0.05
sys.exit(rank.run({NONCE!r}, "/", ["sleep", "0.3"]))
"""
    own = {"LOCAL_RANK": local_rank, "LOCAL_SIZE": local_size, "SIZE": size, "RANK": 3}
    environment = os.environ | {f"OMPI_COMM_WORLD_{name}": str(number) for name, number in own.items()}
    process = subprocess.Popen([sys.executable, "-c", often], stderr=subprocess.PIPE, env=environment)
    code, _, _, reports = finish(process)
    assert (code, reports[-1]) == (0, "ended 0 0")
    assert set(reports[:-1]) == ({"alive"} if beats else set())
    assert not beats or 1 < len(reports) < 20


def test_work_after_the_job_is_reported() -> None:
    note = "import os, time; pipe = int(os.environ['HOROVOD_RANK_NOTES'].split(':')[0]); "
    note += "os.write(pipe, b'%s\\n')"
    spin = "; end = time.process_time() + 2.5\nwhile time.process_time() < end: pass"

    def said(*code: str) -> list[str]:
        return finish(start(sys.executable, "-S", "-c", "".join(code)))[3]

    works = said(note % "outside 1", spin)
    assert works[0] == "note outside 1" and works[-1] == "ended 0 0" and set(works[1:-1]) == {"busy"}
    assert said(note % "outside 1", "; time.sleep(2)") == ["note outside 1", "ended 0 0"], "it sleeps"
    assert "busy" not in said(note % "outside 1\\ninside 1", spin)


def test_the_rank_does_not_outlive_its_wrapper() -> None:
    process = start("sh", "-c", "echo $$; exec sleep 300")
    assert process.stderr is not None
    decoder, pid = Decoder(NONCE), 0
    while not pid:
        for part in decoder.feed(os.read(process.stderr.fileno(), 65536)):
            assert isinstance(part, Cell)
            pid = int(part.payload) if part.kind == b"O" else pid
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=20)
    process.stderr.close()
    wait_for_end(pid)


def test_no_rank_without_an_mpirun() -> None:
    line = [sys.executable, "-I", "-S", wrapper.__file__, NONCE, "/", "true"]
    result = subprocess.run(line, env={}, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and "set none of OMPI_COMM_WORLD_RANK" in result.stderr


def test_a_rank_whose_first_word_nobody_hears_ends_what_it_started(tmp_path: Path) -> None:
    """Its mpirun was killed before it had read a word; the command has started a process by then."""
    number = tmp_path / "process"
    late = f"""
import sys, time
from pathlib import Path
from horovod.runner import rank
report = rank.Rank.report
def when_it_has_started(self, text):
    while not (number := Path({str(number)!r})).exists() or not number.read_text().endswith("\\n"):
        time.sleep(0.01)
    report(self, text)
rank.Rank.report = when_it_has_started
sys.exit(rank.run({NONCE!r}, "/", ["sh", "-c", "sleep 300 & echo $! > {number}; sleep 300"]))
"""
    unread, written = os.pipe()
    os.close(unread)
    environment = os.environ | {"OMPI_COMM_WORLD_RANK": "3"}
    done = subprocess.run(
        [sys.executable, "-c", late], stderr=written, env=environment, timeout=30, check=False
    )
    os.close(written)
    process = int(number.read_text())
    try:
        assert done.returncode == 1
        wait_for_end(process)
    finally:
        send(process, signal.SIGKILL)


def outcome(*reports: tuple[int, str], ranks: int = 3) -> Outcome:
    result = Outcome(ranks)
    for rank in range(ranks):
        result.take(rank, f"started host{rank} 100")
    for rank, report in reports:
        result.take(rank, report)
    return result


def test_success_is_the_word_of_every_rank() -> None:
    assert outcome((0, "ended 0 0"), (1, "ended 0 0"), (2, "ended 0 0")).conclusion(1) == (0, "")
    code, message = outcome((0, "ended 0 0"), (2, "ended 0 0")).conclusion(0)
    assert code == 1 and message.startswith("rank 1 on host1 did not report how it ended")


def test_the_culprit_is_named() -> None:
    first = outcome((1, "ended 3 0"), (0, "ended 1 0"), (2, "killed 15 1"))
    assert first.conclusion(0) == (3, "rank 1 on host host1 exited with code 3; the other ranks were ended")
    by_signal = outcome((0, "ended 14 0"), (2, "killed 9 0"))
    assert by_signal.conclusion(14) == (
        137,
        "rank 2 on host host2 was killed by signal 9 (SIGKILL); the other ranks were ended",
    )
    refused = outcome((0, "refused 127 the command x was not found"), ranks=1)
    assert refused.conclusion(1) == (127, "rank 0 on host host0 could not run: the command x was not found")


def test_victims_are_not_blamed() -> None:
    code, message = outcome((1, "ended 0 0"), (0, "killed 15 1"), (2, "killed 15 1")).conclusion(1)
    assert code == 1 and "rank 1 ended with code 0 before the others" in message
    code, message = Outcome(2).conclusion(213)
    assert (code, message[:44]) == (213, "mpirun exited with code 213 before any rank ")


def test_who_was_stopped_together_with_its_wrapper_is_not_ended() -> None:
    """A scheduler stops all of a job, and lets the wrapper go on first: the stop has lasted for nobody."""
    limits = {"HOROVOD_ELASTIC": "1", "HOROVOD_TCP_TIMEOUT_SECONDS": "3", "HOROVOD_AGENT": "0"}
    process = start("sh", "-c", "kill -STOP $$; echo went on", **limits)
    assert process.stderr is not None
    decoder, seen = Decoder(NONCE), list[bytes]()
    while not any(each.startswith(b"stopped") for each in seen):
        parts = decoder.feed(os.read(process.stderr.fileno(), 1 << 16))
        seen += [each.payload for each in parts if isinstance(each, Cell)]
    time.sleep(0.3)  # until it has noted when that was
    process.send_signal(signal.SIGSTOP)
    time.sleep(3.2)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    os.kill(int(seen[0].split()[2]), signal.SIGCONT)
    parts = decoder.feed(process.stderr.read())
    said = b"".join(each.payload for each in parts if isinstance(each, Cell))
    assert process.wait(timeout=20) == 0 and b"went on" in said and b"it is ended" not in said, said
