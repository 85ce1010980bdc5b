"""horovodrun's standard streams and files: input for rank 0, and output that is full, closed or unread."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from launching import fresh_mark, processes_of

FULL = "cannot be written: No space left on device (ENOSPC); all ranks were ended"


def shell(script: str, limit: float = 60, **streams: int) -> subprocess.CompletedProcess[bytes]:
    """Run a shell script in which `horovodrun` is this package's. No process of it may be left."""
    mark = fresh_mark()
    script = f'horovodrun() {{ {sys.executable} -m horovod.runner "$@"; }}; {script}'
    environment = launching.environment(mark)
    with subprocess.Popen(
        ["bash", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **streams,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert not processes_of(mark), err
    return subprocess.CompletedProcess(script, process.returncode, out, err)


@pytest.mark.quick
@pytest.mark.parametrize("given", ["cat {data} | {job}", "{job} < {data}"], ids=["pipe", "file"])
def test_standard_input_is_rank_0s_to_its_end(tmp_path: Path, given: str) -> None:
    """All bytes pass unchanged."""
    data = random.Random(0).randbytes(3_000_001)
    (tmp_path / "data").write_bytes(data)
    script = given.format(data=tmp_path / "data", job="horovodrun -np 2 md5sum")
    result = shell(script, stdin=subprocess.DEVNULL)
    shown = {f"[{rank}]<stdout>:{hashlib.md5(text).hexdigest()}  -" for rank, text in enumerate((data, b""))}
    assert (result.returncode, set(result.stdout.decode().splitlines())) == (0, shown), result.stderr


def test_input_of_a_line_ends() -> None:
    result = shell("echo x | horovodrun -np 2 cat", stdin=subprocess.DEVNULL)
    assert (result.returncode, result.stdout) == (0, b"[0]<stdout>:x\n")


def test_standard_input_that_ends_at_once_is_closed_or_is_not_read() -> None:
    count = "horovodrun -np 1 wc -c"
    script = f"{count} < /dev/null && {count} <&- && yes | horovodrun -np 1 echo 1"
    result = shell(script, stdin=subprocess.DEVNULL)
    shown = "".join(f"[0]<stdout>:{number}\n" for number in (0, 0, 1))
    assert (result.returncode, result.stdout.decode()) == (0, shown), result.stderr


def test_output_on_a_full_disk_ends_the_job(tmp_path: Path) -> None:
    ranks = "horovodrun -np 2 {} sh -c 'echo a; sleep 300'"
    result = shell(ranks.format("") + " > /dev/full")
    assert result.returncode == 1
    assert result.stderr.decode() == f"horovodrun: standard output (/dev/full) {FULL}\n"
    (tmp_path / "rank.1").mkdir()
    (tmp_path / "rank.1" / "stdout").symlink_to("/dev/full")
    result = shell(ranks.format(f"--output-filename {tmp_path}"))
    assert result.returncode == 1
    assert result.stderr.decode() == f"horovodrun: {tmp_path}/rank.1/stdout {FULL}\n"


def writes_in_vain(process: int) -> bool:
    """Return whether one of its threads waits for space in a pipe."""
    waits = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/wchan")]
    return bool({"pipe_write", "anon_pipe_write"}.intersection(waits))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_output_that_nobody_reads_keeps_no_signal_away(number: signal.Signals) -> None:
    mark = fresh_mark()
    process = launching.start(["-np", "1", "sh", "-c", "echo up; exec yes"], mark)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "[0]<stdout>:up\n"  # the rest fills the pipe
    while not writes_in_vain(process.pid):
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    assert process.stderr.read() == f"horovodrun: stopped by {number.name}, all ranks were ended\n"
    process.stdout.close()
    process.stderr.close()
    assert not processes_of(mark)


def test_streams_that_are_closed() -> None:
    result = shell("horovodrun -np 1 echo a >&-")
    assert result.returncode == 2
    assert result.stderr.decode() == (
        "horovodrun: standard output is closed, and ranks' output would go nowhere; redirect it (to "
        "/dev/null, say)\n"
    )
    result = shell("horovodrun -np 1 echo a 2>&-")
    assert (result.returncode, result.stdout) == (0, b"[0]<stdout>:a\n")
    result = shell("horovodrun --version | true; exit ${PIPESTATUS[0]}")
    assert result.returncode in (0, 128 + signal.SIGPIPE) and result.stderr == b""
    result = shell("horovodrun --check-build > /dev/full")
    assert (result.returncode, result.stderr) == (
        1,
        b"horovodrun: standard output cannot be written: No space left on device\n",
    )
