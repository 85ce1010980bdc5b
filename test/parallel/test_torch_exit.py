"""The end of a job of real ranks: regular, by an exception on one rank, by exit codes; it never hangs."""

import re
import sys
import textwrap

import pytest
from rank_jobs import TIMED_OUT, run_ranks

import horovod

START = """
import os, sys, torch
import horovod.torch as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
"""


def run(np: int, program: str, **env: str) -> tuple[int, str]:
    job = run_ranks(np, [sys.executable, "-c", START + textwrap.dedent(program)], timeout=60, env=env)
    assert job.returncode != TIMED_OUT, job.stdout
    return job.returncode, job.stdout


@pytest.mark.parametrize("shutdown", ["", "hvd.shutdown()", "hvd.shutdown(); hvd.init()"])
def test_a_program_that_ends_in_order(shutdown: str) -> None:
    code, output = run(
        2,
        f"""
        unfinished = hvd.allreduce_async(torch.ones(3), name=f"only on {{rank}}")
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).sum() == 3 * size  # from here on a rank may leave
        assert os.environ.get("OMPI_COMM_WORLD_RANK", str(rank)) == str(rank) and hvd.mpi_enabled()
        {shutdown}
        print(f"<rank {{rank}} is through with {horovod.__version__}>")
        """,
    )
    assert code == 0, output
    for rank in range(2):
        assert f"<rank {rank} is through with {horovod.__version__}>" in output
    assert "Error" not in output.replace("OSC UCX component priority set inside component query failed", "")


def test_an_exception_on_one_rank_ends_all() -> None:
    code, output = run(
        3,
        """
        if rank == 1:
            raise RuntimeError("the data of this rank is damaged")
        hvd.allreduce(torch.ones(3), name="rank 1 never comes")
        print("<survived>")
        """,
    )
    assert code != 0, output
    assert "the data of this rank is damaged" in output and "<survived>" not in output


def test_a_rank_that_leaves_early_is_an_error_for_those_who_wait() -> None:
    code, output = run(
        2,
        """
        if rank == 0:
            sys.exit(0)
        try:
            hvd.allreduce(torch.ones(3), name="apple")
        except hvd.HorovodInternalError as error:
            print(f"<told: {error}>")
        """,
    )
    assert "<told: " in output and code == 0, output


def test_exit_codes_are_passed_on() -> None:
    code, output = run(2, "hvd.barrier(); sys.exit(3 if rank == 1 else 0)")
    assert code == 3, output


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_every_transport(transport: str) -> None:
    code, output = run(
        2,
        f"""
        from horovod.common.basics import basics
        assert basics.member().world.transport == {transport!r}
        for name in ("none", "fp16", "bit16", "bit8"):
            for ones in [torch.ones(shape) for shape in [(), (0,), (70_001,), (1 << 20,)]]:
                assert torch.equal(hvd.allreduce(ones, compression=getattr(hvd.Compression, name)), ones)
        assert torch.equal(hvd.allgather(torch.full((rank + 1, 2), rank))[1:], torch.ones(2, 2))
        assert hvd.broadcast_object({{"rank": rank}}, 1) == {{"rank": 1}}
        """,
        HOROVOD_TRANSPORT=transport,
    )
    assert code == 0, output


def test_mpi4py_beside_it() -> None:
    pytest.importorskip("mpi4py")
    code, output = run(
        2,
        """
        from mpi4py import MPI
        assert (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) == (rank, size)
        assert MPI.COMM_WORLD.allreduce(rank) == int(hvd.allreduce(torch.tensor(rank), op=hvd.Sum))
        hvd.shutdown()
        try:
            hvd.init(comm=MPI.COMM_SELF)
        except ValueError as error:
            assert "COMM_WORLD" in str(error)
        hvd.init(comm=MPI.COMM_WORLD)
        assert hvd.allreduce(torch.ones(1)) == 1
        """,
    )
    assert code == 0, output


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_a_rank_that_cannot_go_on_takes_the_others_out_of_their_wait(transport: str) -> None:
    """Rank 1 lacks memory for the result while rank 0 is in the middle of the same operation."""
    code, output = run(
        2,
        """
        import resource, sys, time
        mine = torch.ones(40_000_000)
        if rank == 1:
            resident = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (resident + 100_000_000, resource.RLIM_INFINITY))
        try:
            hvd.allgather(mine, name="large")
        except hvd.HorovodInternalError as error:
            print(f"<rank {rank}: {error}>", flush=True)
            time.sleep(2.0 if rank == 1 else 0.0)  # its end would make mpirun end rank 0
            sys.exit(3)
        """,
        HOROVOD_TRANSPORT=transport,
    )
    assert code != 0, output
    assert "<rank 1: 'allgather.large', 160000000 bytes, failed on rank 1: not enough memory" in output
    assert re.search("<rank 0: .*lost rank 1", output)


@pytest.mark.parametrize("transport", ["shared_memory", "mpi"])
def test_a_rank_that_gives_up_in_the_middle_of_an_allreduce(transport: str) -> None:
    """Rank 1 has agreed and stops; the others' transfers are in progress, and their memory is freed."""
    code, output = run(
        3,
        """
        import gc, time
        from horovod import _native
        from horovod.common.build_info import build_info
        from horovod.common.launched import detect
        from horovod.common.mpi_here import mpi_here
        hvd.shutdown()
        options = _native.Settings()
        options.transport = os.environ["HOROVOD_TRANSPORT"]
        launch = detect(os.environ)
        libmpi = mpi_here(build_info().mpi).library_path()
        world = _native.open_world(options, libmpi, launch.size, launch.evidence)
        engine = _native.Engine(world, options, rank != 1)
        x = torch.ones(10_000_000)
        view = _native.Tensor(x.data_ptr(), x.data_ptr(), list(x.shape), 6)
        handle = engine.allreduce("x", [view], _native.Reduction())
        if rank == 1:
            engine.step(1.0)
            time.sleep(0.5)
            world.abandon()
        else:
            try:
                engine.wait(handle)
            except hvd.HorovodInternalError as error:
                print(f"<rank {rank}: {error}>", flush=True)
                del x, view
                gc.collect()
        time.sleep(2.5)  # the end of one makes mpirun end the others
        os._exit(3)  # MPI cannot end in order without rank 1
        """,
        HOROVOD_TRANSPORT=transport,
    )
    assert code != 0, output
    for rank in (0, 2):
        assert f"<rank {rank}: 'x', 40000000 bytes, failed on rank {rank}: rank {rank} lost rank " in output


def test_a_signal_is_served_while_a_rank_waits() -> None:
    code, output = run(
        2,
        """
        import signal, time
        if rank == 0:
            def told(*_):
                print(f"<served after {time.monotonic() - start:.1f} s>", flush=True)
            signal.signal(signal.SIGALRM, told)
            start = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            hvd.barrier()
            print(f"<waited {time.monotonic() - start > 1.4}>", flush=True)
        else:
            time.sleep(1.5)
            hvd.barrier()
        """,
    )
    assert code == 0, output
    assert output.index("<served after 0.") < output.index("<waited True>")


def test_ranks_with_different_settings_do_not_start() -> None:
    """Different routes would wait forever; and rank 0's settings for all may differ from a rank's variables.

    Settings that ranks may have for themselves are no error, nor is another instruction set. One job tries
    all.
    """
    apart = {
        "HOROVOD_DETERMINISTIC": ("0", "1"),
        "HOROVOD_ALLREDUCE_ALGORITHM": ("auto", "scatter"),
        "HOROVOD_TRANSPORT": ("auto", "mpi"),
        "HOROVOD_GPU_TRANSPORT": ("auto", "host"),
        "HOROVOD_FUSION_THRESHOLD": ("134217728", "1024"),
        "HOROVOD_CACHE_CAPACITY": ("1024", "0"),
        "HOROVOD_DISABLE_GROUP_FUSION": ("0", "1"),
        "HOROVOD_STALL_CHECK_DISABLE": ("0", "1"),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": ("60", "5.5"),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ("0", "7"),
    }
    code, output = run(
        2,
        f"""
        hvd.shutdown()

        def begun(**settings):
            for name, value in settings.items():
                if value is None or rank == 0:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            try:
                hvd.init()
            except ValueError as error:
                print(f"<{{rank}}: {{error}}>", flush=True)

        for variable, (_, value) in {apart!r}.items():
            begun(**{{variable: value}})
            os.environ.pop(variable, None)
        begun(HOROVOD_CACHE_CAPACITY="7", HOROVOD_TRANSPORT="mpi")
        begun(HOROVOD_CACHE_CAPACITY=None, HOROVOD_TRANSPORT=None, HOROVOD_DYNAMIC_PROCESS_SETS="1")
        begun(HOROVOD_DYNAMIC_PROCESS_SETS=None, HOROVOD_CYCLE_TIME="3", HOROVOD_LOG_LEVEL="error",
              HOROVOD_SIMD="baseline", HOROVOD_TIMELINE="DYNAMIC", HOROVOD_MPI_THREADS_DISABLE="1")
        print(f"<{{rank}}: {{hvd.allreduce(torch.ones(1), op=hvd.Sum).item()}}>", flush=True)
        """,
    )
    assert code == 0, output
    for rank in range(2):
        for variable, (first, second) in apart.items():
            assert re.search(rf"<{rank}: .* {variable} \(rank 0: {first}; rank 1: {second}\)\. ", output)
        both = r"HOROVOD_CACHE_CAPACITY \(rank 0: 1024; rank 1: 7\), HOROVOD_TRANSPORT \(rank 0: auto; "
        assert re.search(f"<{rank}: .* {both}", output)
        assert f"<{rank}: HOROVOD_DYNAMIC_PROCESS_SETS is on for rank 1 of 2 only" in output
        assert f"<{rank}: 2.0>" in output
