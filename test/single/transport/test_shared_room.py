"""Memory that ranks of a host share: its size, and the error if there is not enough room."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from horovod.runner.by_mpirun import _SHARED_BY_RANK

NATIVE = Path(__file__).resolve().parents[3] / "horovod" / "native"
PAGE = mmap.PAGESIZE
WRAPPER = """
#include "base/error.cc"
#include "base/process.cc"
#include "transport/shared_segments.cc"
#include <cstring>

extern "C" {
bool trial_commit(std::byte* memory, size_t bytes) { return hvd::commit(memory, bytes); }
void trial_why_no_room(size_t bytes, int ranks, char* text) {
  std::strcpy(text, hvd::why_no_room(bytes, ranks).text().c_str());
}
void trial_no_room_left(size_t bytes, int ranks, char* text) {
  std::strcpy(text, hvd::no_room_left(bytes, ranks).text().c_str());
}
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The source compiled alone, as its users need an MPI."""
    folder = tmp_path_factory.mktemp("shared_room")
    (folder / "wrapper.cc").write_text(WRAPPER)
    words = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{NATIVE}", "-o", "library.so", "wrapper.cc"]
    subprocess.run(words, cwd=folder, check=True)
    made = ctypes.CDLL(str(folder / "library.so"))
    made.trial_commit.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    made.trial_commit.restype = ctypes.c_bool
    for function in (made.trial_why_no_room, made.trial_no_room_left):
        function.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p]
        function.restype = None
    return made


def said(function: ctypes._CFuncPtr, nbytes: int, ranks: int) -> str:
    text = ctypes.create_string_buffer(4096)
    function(nbytes, ranks, text)
    return text.value.decode()


def in_mib(nbytes: int) -> str:
    tenths = nbytes * 10 >> 20
    return f"{tenths // 10}.{tenths % 10} MiB"


def address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class TestCommit:
    def test_fills_memory_with_zeros_and_nothing_beyond(self, library: ctypes.CDLL) -> None:
        memory = mmap.mmap(-1, 3 * PAGE)
        memory[:] = b"x" * len(memory)
        assert library.trial_commit(address(memory), 2 * PAGE + 5)
        assert memory[:] == bytes(2 * PAGE + 5) + b"x" * (PAGE - 5)

    @pytest.mark.parametrize("pages", [0, 1])
    def test_is_refused_where_the_system_has_less(
        self, library: ctypes.CDLL, pages: int, tmp_path: Path
    ) -> None:
        """The process continues; a direct store to this memory would end it."""
        with (tmp_path / "segment").open("w+b") as file:
            file.truncate(2 * PAGE)
            memory = mmap.mmap(file.fileno(), 2 * PAGE)
            file.truncate(pages * PAGE)
        assert library.trial_commit(address(memory), pages * PAGE)
        assert not library.trial_commit(address(memory), 2 * PAGE)

    def test_is_believed_where_nobody_can_tell(self, library: ctypes.CDLL) -> None:
        """No file descriptor is free: a job with enough memory must still begin."""
        memory = mmap.mmap(-1, PAGE)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            assert library.trial_commit(address(memory), PAGE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class TestComplaint:
    def test_says_what_is_needed_and_what_to_do(
        self, library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMPI_MCA_osc_sm_backing_directory", str(tmp_path))
        text = said(library.trial_why_no_room, 2**50 + 2**19, 2)
        needed = (2**51 + 2**20) * 17 // 16 + 2**16
        size = os.statvfs(tmp_path)
        of = in_mib(size.f_blocks * size.f_frsize)
        assert text.startswith(f"{tmp_path} of {os.uname().nodename} is too small: ")
        assert f" of its {of} are free, and its 2 ranks need {in_mib(needed)} there" in text
        assert text.endswith("or set HOROVOD_TRANSPORT=mpi or tcp, which are slower")
        assert said(library.trial_no_room_left, 2**50, 2).startswith(text[:80])

    def test_is_of_another_process_where_there_was_room(
        self, library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OMPI_MCA_osc_sm_backing_directory", str(tmp_path))
        text = said(library.trial_no_room_left, 1, 2)
        assert "is too small: somebody else was quicker to fill it, and its 2 ranks need 0.0 MiB" in text

    @pytest.mark.parametrize("folder", ["/nowhere", "/proc"])
    def test_is_none_where_nothing_is_too_small(
        self, library: ctypes.CDLL, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """MPI uses another folder, or the folder has no limit."""
        monkeypatch.setenv("OMPI_MCA_osc_sm_backing_directory", folder)
        assert said(library.trial_why_no_room, 2**50, 2) == ""

    @pytest.mark.parametrize("named", [None, ""])
    def test_is_about_shared_memory_unless_another_folder_is_named(
        self, library: ctypes.CDLL, named: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OMPI_MCA_osc_sm_backing_directory", raising=False)
        if named is not None:
            monkeypatch.setenv("OMPI_MCA_osc_sm_backing_directory", named)
        assert said(library.trial_no_room_left, 2**50, 1).startswith("/dev/shm of ")


# In a new process, which cannot reuse memory of other tests.
SHARED = """
from pathlib import Path
from mmap import PAGESIZE

from horovod import _native

pages = lambda: int(Path("/proc/self/statm").read_text().split()[0])
before = pages()
worlds = _native.local_worlds({size})
print((pages() - before) * PAGESIZE)
"""


@pytest.mark.parametrize("size", [8, 32, 128])
def test_a_rank_shares_as_much_as_horovodrun_reckons_with_among_any_number(size: int) -> None:
    """A rank has one ring from each rank, so rings get shorter with more ranks."""
    open_mpi = 16 << 20
    command = [sys.executable, "-c", SHARED.format(size=size)]
    shared = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) / size
    assert 4 << 20 < shared < _SHARED_BY_RANK - open_mpi
