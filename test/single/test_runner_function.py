"""horovod.run without ranks: its parameters, and the parcels and signatures that functions travel with."""

import hmac
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import horovod
import horovod.runner
from horovod.runner import parcel, run_function

KEY = bytes(range(32))
DONE = {"code": 0, "message": "", "culprit": None}


def nothing() -> None:
    """Never called here."""


def test_the_names() -> None:
    assert horovod.run is run_function.run and horovod.runner.run is run_function.run
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        horovod.runs  # noqa: B018 -- it is the access that raises


def test_importing_horovod_is_cheap() -> None:
    code = (
        "import sys, horovod; print({'torch', 'yaml', 'psutil', 'numpy', 'cloudpickle'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_no_module_of_the_launcher_hides_one_of_python() -> None:
    folder = Path(run_function.__file__).parent
    assert not {path.stem for path in folder.glob("*.py")} & set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "parameters, kind, part",
    [
        ({"hosts": "a:1", "hostfile": "f"}, ValueError, "hosts and hostfile exclude each other"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "exclude each other"),
        ({"use_gloo": True}, ValueError, "use_gloo is not served"),
        ({"num_proc": 0}, ValueError, "num_proc: 0 is not a whole number >= 1"),
        ({"num_proc": "two"}, ValueError, "num_proc: 'two' is not a whole number"),
        ({"start_timeout": -1}, ValueError, "start_timeout: -1 is not"),
        ({"ssh_port": "x"}, ValueError, "ssh_port: 'x' is not"),
        ({"compression": "bit8,int4"}, ValueError, "compression: 'bit8,int4' is not a name"),
        ({"min_num_proc": 1}, NotImplementedError, "min_num_proc is not served yet"),
        ({"max_np": 4}, NotImplementedError, "max_np is not served yet"),
        ({"host_discovery_script": "x"}, NotImplementedError, "not served yet"),
        ({"cooldown_range": (1, 2)}, NotImplementedError, "not served yet"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], kind: type[Exception], part: str) -> None:
    with pytest.raises(kind) as error:
        horovod.run(nothing, **parameters)
    assert part in str(error.value)


def test_parameters_become_options() -> None:
    given = dict(
        np=3,
        hosts="a:1,b:2",
        hostfile=None,
        ssh_port=23,
        verbose=2,
        disable_cache=False,
        network_interfaces=("eth0", "eth1"),
        network_interface=None,
        output_filename="logs",
        mpi_args="--x",
        start_timeout=None,
        compression="int4:error_feedback=1",
        compression_force=True,
    )
    assert run_function._options(given) == {
        "np": 3,
        "hosts": "a:1,b:2",
        "ssh_port": 23,
        "verbose": True,
        "disable_cache": False,
        "network_interfaces": ["eth0", "eth1"],
        "output_filename": "logs",
        "mpi_args": "--x",
        "compression": "int4:error_feedback=1",
        "compression_force": True,
    }
    older = {"network_interfaces": None, "network_interface": "eth0,eth1"}
    assert run_function._options(older) == {"network_interfaces": ["eth0", "eth1"]}


def signed(rank: int, kind: bytes, body: bytes, key: bytes = KEY) -> bytes:
    return parcel.signature(key, rank, kind, body) + kind + body


class Trap:
    """Unpickling it would be noticed."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("an unsigned result was unpickled",))


def results(*values: bytes) -> list[Any]:
    return run_function._results(KEY, len(values), DONE, dict(enumerate(values)))


def test_results_by_rank() -> None:
    values = [signed(rank, parcel.RETURNED, pickle.dumps(rank * 10)) for rank in range(3)]
    assert results(*values) == [0, 10, 20]


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"R",
        pickle.dumps(Trap()),
        bytes(32) + b"R" + pickle.dumps(Trap()),
        signed(0, b"R", pickle.dumps(Trap()), key=bytes(32)),  # another key
        signed(1, b"R", pickle.dumps(Trap())),  # another rank's
        signed(0, b"E", pickle.dumps(Trap()))[:32] + b"R" + pickle.dumps(Trap()),  # another kind
        signed(0, b"X", pickle.dumps(Trap())),
        signed(0, b"R", pickle.dumps(Trap())) + b"x",
    ],
)
def test_what_is_not_signed_is_not_unpickled(forged: bytes) -> None:
    with pytest.raises(RuntimeError, match="rank 0 sent a result that it did not sign"):
        results(forged)


def test_a_rank_that_returned_nothing_is_named() -> None:
    one = {0: signed(0, parcel.RETURNED, pickle.dumps(1))}
    with pytest.raises(RuntimeError, match="rank 1 ended without returning"):
        run_function._results(KEY, 2, DONE, one)


def raised(rank: int, text: str) -> bytes:
    told = {"what": "its function", "type": "KeyError", "message": text, "traceback": f"Trace {text}"}
    return signed(rank, parcel.RAISED, json.dumps(told).encode())


def test_the_first_rank_that_raised_is_blamed() -> None:
    ending = {"code": 1, "message": "rank 0 on host h exited with code 1", "culprit": 0}
    with pytest.raises(RuntimeError) as error:
        run_function._results(KEY, 3, ending, {2: raised(2, "first"), 0: raised(0, "after")})
    assert str(error.value) == (
        "mpirun failed with exit code 1: rank 2 exited with non-zero status 1, as its function raised "
        "KeyError: first (rank 0 raised too)\n\nTrace first"
    )
    consequence = raised(1, "peer gone").replace(
        b"KeyError", b"horovod.common.exceptions.HorovodInternalError"
    )
    body = consequence[33:]
    values = {1: signed(1, parcel.RAISED, body), 2: raised(2, "cause")}
    with pytest.raises(RuntimeError, match=r"rank 2 exited with non-zero status 1, .* KeyError: cause"):
        run_function._results(KEY, 3, ending | {"culprit": 1}, values)


def test_a_rank_that_was_killed_is_blamed_before_those_that_raised() -> None:
    ending = {"code": 137, "message": "rank 1 on host h was killed by signal 9 (SIGKILL)", "culprit": 1}
    with pytest.raises(
        RuntimeError, match=r"mpirun failed with exit code 137: .*rank 1 on host h was killed"
    ):
        run_function._results(KEY, 2, ending, {0: raised(0, "peer lost")})
    with pytest.raises(RuntimeError, match=r"^no host$"):
        run_function._results(KEY, 2, {"error": "no host"}, {})


def test_a_parcel_is_private_and_goes_away() -> None:
    name = parcel.fresh_name()
    contents = parcel.packed(KEY, {"path": ["/x"]}, b"function")
    with parcel.stored(name, contents) as path, parcel.stored(name, contents):  # as two names of one host do
        assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
        key, header, function = parcel.unpacked(parcel.found(name))
        assert (key, header, bytes(function)) == (KEY, {"path": ["/x"]}, b"function")
    assert not path.parent.exists()
    with pytest.raises(FileNotFoundError, match=name):
        parcel.found(name)


def test_somebody_elses_parcel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "name").mkdir(mode=0o755)
    (tmp_path / "name").chmod(0o755)
    (tmp_path / "name" / "parcel").write_bytes(b"x")
    for attempt in (lambda: parcel.found("name"), lambda: parcel.stored("name", b"y").__enter__()):
        with pytest.raises(PermissionError, match="no folder that only this user can enter"):
            attempt()
    (tmp_path / "link").symlink_to(tmp_path / "name")
    with pytest.raises(PermissionError):
        parcel.found("link")


def test_the_signature_is_hmac_sha256() -> None:
    expected = hmac.new(KEY, (5).to_bytes(8, "big") + b"R" + b"body", "sha256").digest()
    assert parcel.signature(KEY, 5, b"R", b"body") == expected
    assert len(os.urandom(32)) == parcel.KEY_SIZE
