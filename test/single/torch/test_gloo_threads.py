"""At exit and in destroy_process_group(), a process of torch waits for gloo's threads only."""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import busy
import pytest

from horovod.gloo_threads import GLOO_THREAD, wait_for_gloo, wait_for_gloo_in_destroy_process_group

WORK = bytes(50_000_000)  # a thread that hashes it runs without the interpreter's lock


@contextmanager
def thread_that_works(hashes: int, name: bytes = GLOO_THREAD.encode()) -> Iterator[threading.Event]:
    """A thread of that name, which rests after a number of hashes; the event shows that it does."""
    at_rest, end = threading.Event(), threading.Event()

    def work() -> None:
        Path("/proc/thread-self/comm").write_bytes(name)
        named.set()
        for _ in range(hashes):
            if end.is_set():
                return
            hashlib.sha256(WORK)
        at_rest.set()
        end.wait()

    named = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    named.wait()
    try:
        yield at_rest
    finally:
        end.set()
        thread.join()


def test_gloos_threads_are_waited_for() -> None:
    with thread_that_works(hashes=8) as at_rest:
        wait_for_gloo(most_seconds=60)
        assert at_rest.is_set()


def test_those_that_do_not_come_to_rest_are_left() -> None:
    with thread_that_works(hashes=10**6) as at_rest:
        wait_for_gloo(most_seconds=0.1)
        assert not at_rest.is_set()


def test_other_threads_are_not_waited_for() -> None:
    cut = "Rückrechnen für".encode()[:2]  # the system truncates names: not UTF-8 any more
    with thread_that_works(hashes=10**6, name=cut) as at_rest:
        begin = time.monotonic()
        wait_for_gloo(most_seconds=60)
        assert time.monotonic() - begin < busy.patience(30)
        assert not at_rest.is_set()


def test_torch_names_its_threads_so() -> None:
    pytest.importorskip("torch")
    script = f"""
import torch, torch.distributed as dist
from horovod import gloo_threads
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1))  # by a thread that has its name
gloo_threads.wait_for_gloo(most_seconds=60)
print(gloo_threads._states_of_threads({GLOO_THREAD!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{'S'}\n"


def test_the_end_of_process_groups_waits_for_them() -> None:
    dist = pytest.importorskip("torch.distributed")
    wait_for_gloo_in_destroy_process_group()
    wait_for_gloo_in_destroy_process_group()  # once is enough
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        with thread_that_works(hashes=3) as at_rest:
            dist.destroy_process_group()
            assert at_rest.is_set() and not dist.is_initialized()
    finally:
        c10d = dist.distributed_c10d
        c10d._unregister_all_process_groups = c10d._unregister_all_process_groups.__wrapped__
    assert not hasattr(c10d._unregister_all_process_groups, "__wrapped__")
