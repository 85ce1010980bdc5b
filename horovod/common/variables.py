"""The variables HOROVOD_* that mean something to somebody, so that one that was mistyped can be told of.

Ranks, the launcher and torch's autoload ask, and the last two load neither the native core nor the table of
options; so the names stand here once more. A test compares them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from horovod.common.names import did_you_mean

__all__ = ["KNOWN", "unknown", "warn_of_unknown"]

_PREFIX = "HOROVOD_"

# Settings and options, those that are not served included: these are told of elsewhere, with the reason.
_OPTIONS = """
    ADASUM_MPI_CHUNK_SIZE ALLREDUCE_ALGORITHM AUTOTUNE AUTOTUNE_BAYES_OPT_MAX_SAMPLES
    AUTOTUNE_GAUSSIAN_PROCESS_NOISE AUTOTUNE_LOG AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_WARMUP_SAMPLES
    BACKEND_MIN_ELEMENTS BATCH_D2D_MEMCOPIES CACHE_CAPACITY CCL_CACHE COMPRESSION COMPRESSION_FORCE CONTROLLER
    CPU_OPERATIONS CYCLE_TIME DDP_COMPRESSION DETERMINISTIC DISABLE_GROUP_FUSION DISABLE_NVTX_RANGES
    DYNAMIC_PROCESS_SETS ELASTIC ELASTIC_TIMEOUT ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS FUSION_THRESHOLD
    GLOO_IFACE GLOO_TIMEOUT_SECONDS GPU_TRANSPORT HIERARCHICAL_ALLGATHER HIERARCHICAL_ALLREDUCE LOG_HIDE_TIME
    LOG_LEVEL MPI_THREADS_DISABLE NUM_NCCL_STREAMS SIMD STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS
    STALL_SHUTDOWN_TIME_SECONDS START_TIMEOUT THREAD_AFFINITY TIMELINE TIMELINE_MARK_CYCLES TORUS_ALLREDUCE
    TRANSPORT
"""
# Of the build, of launchers, and between parts of this package.
_OTHERS = """
    ALLOW_MIXED_GPU_IMPL CMAKE CROSS_RANK CROSS_SIZE CUDA_HOME DEBUG DEVELOPER GLOO_RENDEZVOUS_ADDR
    GLOO_RENDEZVOUS_PORT GPU GPU_ALLGATHER GPU_ALLREDUCE GPU_ALLTOALL GPU_BROADCAST GPU_OPERATIONS
    GPU_REDUCESCATTER HOSTNAME JOINED_BY LOCAL_RANK LOCAL_SIZE LOCAL_VERSION MIXED_INSTALL MPI NCCL_HOME
    NCCL_INCLUDE NCCL_LIB NCCL_LIBRARY NCCL_LINK NVTX_INCLUDE RANK RANK_NOTES ROCM_HOME RUN_DAEMON_NETWORKS
    RUN_NETWORKS RUN_PARCEL RUN_VALUE RUN_VERBOSE SANITIZE SECRET_KEY SIZE SKIP_COMPILE
"""
# Families: switches of the build, and of test suites.
_BEGINNINGS = tuple(
    _PREFIX + name
    for name in ("BUILD_", "WITH_", "WITHOUT_", "SPARK_", "TEST_", "CHROMIUM", "FUZZ_", "KEEP_")
)
KNOWN = frozenset(_PREFIX + name for name in (_OPTIONS + _OTHERS).split())
_SETTINGS = tuple(_PREFIX + name for name in _OPTIONS.split())
# Kubernetes gives every container such variables about a service; one may be called horovod.
_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT(_\d+_(TCP|UDP)(_\w+)?)?")
_told: set[str] = set()


def unknown(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable HOROVOD_* that is set and means nothing, with the one that may be meant.

    Not its value, which may be nobody's business: variables of the user's own may have this prefix too.
    """
    names = sorted(name for name in environment if name.startswith(_PREFIX))
    return [
        f"{name} is no variable of horovod and does nothing{did_you_mean(name, _SETTINGS)}"
        for name in names
        if name not in KNOWN and not name.startswith(_BEGINNINGS) and not _OF_KUBERNETES.search(name)
    ]


def warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Log these sentences, each once in the life of a process."""
    for sentence in unknown(environment):
        if sentence not in _told:
            _told.add(sentence)
            logging.getLogger("horovod").warning("horovod: %s (docs/configuration.md lists all).", sentence)
