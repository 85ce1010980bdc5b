"""horovodrun with real processes: how it starts them, and how it shows and writes their output."""

import os
import sys
import time
from pathlib import Path

import launching
from launching import horovodrun

from horovod.common.build_info import build_info
from horovod.runner import errors


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def test_a_plain_command() -> None:
    result = horovodrun("-np", "2", "hostname")
    name = os.uname().nodename
    assert (result.returncode, lines(result.stdout)) == (0, [f"[0]<stdout>:{name}", f"[1]<stdout>:{name}"])
    assert result.stderr == ""


def test_more_ranks_than_cores_and_slots_of_this_host() -> None:
    many = len(os.sched_getaffinity(0)) + 2
    result = horovodrun("-np", str(many), "-H", f"localhost:{many}", "echo", "x")
    assert (result.returncode, lines(result.stdout)) == (0, [f"[{rank}]<stdout>:x" for rank in range(many)])
    refused = horovodrun("-np", "3", "-H", "localhost:2", "hostname")
    said = errors.too_few_slots(np=3, slots=2, hosts="localhost:2", how=", as localhost:3")
    assert (refused.returncode, refused.stderr) == (2, f"horovodrun: {said}\n")


def test_the_environment_and_the_directory_are_kept(tmp_path: Path) -> None:
    result = horovodrun("-np", "2", "sh", "-c", 'echo "$SPECIAL"; pwd', SPECIAL="a  b'c")
    assert lines(result.stdout)[::2] == [f"[0]<stdout>:{os.getcwd()}", f"[1]<stdout>:{os.getcwd()}"]
    assert lines(result.stdout)[1::2] == ["[0]<stdout>:a  b'c", "[1]<stdout>:a  b'c"]


def test_options_reach_the_ranks(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("params: {cycle_time_ms: 5, cache_capacity: 7}\nmistake: 1\n")
    ask = "echo $HOROVOD_CYCLE_TIME $HOROVOD_CACHE_CAPACITY $HOROVOD_FUSION_THRESHOLD $HOROVOD_SIMD"
    options = ["-np", "1", "--cycle-time-ms", "2", "--config-file", str(config), "--fusion-threshold-mb", "1"]
    result = horovodrun(*options, "sh", "-c", ask, HOROVOD_SIMD="baseline", HOROVOD_NUM_NCCL_STREAMS="4")
    assert result.stdout == "[0]<stdout>:2.0 7 1048576 baseline\n"
    assert "unknown key mistake" in result.stderr
    assert "HOROVOD_NUM_NCCL_STREAMS=4 is not served" in result.stderr


def test_output_stays_whole() -> None:
    """Long lines of several ranks at once, bytes that are not UTF-8, a last line without an end."""
    written = r"b'a' * 300000 + b'\n' + b'\xff\xfe\n' + b'b' * 5000 + b'\n' + b'end'"
    code = f"import sys; sys.stdout.buffer.write({written})"
    result = horovodrun("-np", "3", sys.executable, "-c", code)
    for rank in range(3):
        mine = [line for line in result.stdout.split("\n") if line.startswith(f"[{rank}]<stdout>:")]
        texts = [line.partition(":")[2] for line in mine]
        assert texts == ["a" * 300000, "\udcff\udcfe", "b" * 5000, "end"]


def test_python_is_not_buffered() -> None:
    code = "import time; print('now'); time.sleep(60)"
    process = launching.start(["-np", "1", sys.executable, "-c", code], launching.fresh_mark())
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "[0]<stdout>:now\n"
    process.terminate()
    assert process.wait(timeout=20) == 143
    process.stdout.close()
    process.stderr.close()


def test_output_files(tmp_path: Path) -> None:
    script = "echo out $HOROVOD_RANK; echo err >&2; printf end"
    result = horovodrun("-np", "2", "--output-filename", str(tmp_path / "logs"), "sh", "-c", script)
    assert result.returncode == 0
    for rank in range(2):
        folder = tmp_path / "logs" / f"rank.{rank}"
        assert (folder / "stdout").read_text() == f"out {rank}\nend"
        assert (folder / "stderr").read_text() == "err\n"
        assert (
            f"[{rank}]<stdout>:out {rank}\n" in result.stdout and f"[{rank}]<stderr>:err\n" in result.stderr
        )


def test_timestamps_and_verbose() -> None:
    result = horovodrun("-np", "1", "-prefix-timestamp", "--verbose", "echo", "x")
    assert result.stdout.endswith("[0]<stdout>:x\n") and str(time.localtime().tm_year) in result.stdout
    starts, ends = result.stderr.splitlines()
    assert starts == "horovodrun: agents start 1 ranks on localhost:1, each of which runs echo"
    assert ends == f"horovodrun: rank 0 on host {launching.HOST} exited with code 0"


def test_check_build_and_version() -> None:
    report = horovodrun("--check-build")
    assert report.returncode == 0
    for line in (
        "    [X] MPI",
        "    [ ] Gloo",
        f"    [{'X' if build_info().nccl else ' '}] NCCL",
        "    [ ] TensorFlow",
        "Available Controllers:",
    ):
        assert line in report.stdout
    assert "    MPI: " in report.stdout and "    SIMD: " in report.stdout
    import horovod

    assert horovodrun("--version").stdout == f"{horovod.__version__}\n"
    assert report.stdout.startswith(f"Horovod v{horovod.__version__}:\n")
