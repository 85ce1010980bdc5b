// Every HOROVOD_* variable the core reads: one row each, read once when the job is initialised.
//
// A setting is one row here and one row in horovod/common/options/ranks.py (flag, YAML key, documentation); a test holds the
// two tables together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

enum class SettingScope {
  kJob,        // the same on all ranks, or none of them starts
  kFirstRank,  // rank 0's: only it does what they are about
  kRank,       // each rank's own
};

// X(variable, member, type, default, scope, help)
//
// Under a hierarchy of Horovod's two variables HOROVOD_ALLREDUCE_ALGORITHM is hierarchical: that is what ranks agree on. Loops
// of any instruction set give the same bytes (test_mixed_simd.py), so hosts with different processors make one job.
#define HVD_FOR_EACH_SETTING(X)                                                                                             \
  X(HOROVOD_FUSION_THRESHOLD, fusion_threshold, int64_t, 134217728, kJob,                                                   \
    "bytes of ready tensors fused into one collective; 0 = every tensor by itself")                                         \
  X(HOROVOD_CYCLE_TIME, cycle_time, double, 1.0, kRank,                                                                     \
    "milliseconds that submissions nobody waits for are gathered before they are negotiated")                               \
  X(HOROVOD_CACHE_CAPACITY, cache_capacity, int64_t, 1024, kJob,                                                            \
    "agreed requests remembered, so that a repeated one is announced by a number; 0 = off")                                 \
  X(HOROVOD_DISABLE_GROUP_FUSION, disable_group_fusion, bool, false, kJob,                                                  \
    "do not fuse a grouped operation with anything outside its group")                                                      \
  X(HOROVOD_ALLREDUCE_ALGORITHM, allreduce_algorithm, std::string, "auto", kJob,                                            \
    "auto, gather, scatter or hierarchical: how allreduces travel; auto takes the cheapest as estimated")                   \
  X(HOROVOD_HIERARCHICAL_ALLREDUCE, hierarchical_allreduce, bool, false, kRank,                                             \
    "reduce inside each host first: short for HOROVOD_ALLREDUCE_ALGORITHM=hierarchical")                                    \
  X(HOROVOD_TORUS_ALLREDUCE, torus_allreduce, bool, false, kRank,                                                           \
    "the same; in the hierarchy here every rank of a host carries a part across, as in Horovod's torus")                    \
  X(HOROVOD_DETERMINISTIC, deterministic, bool, false, kJob,                                                                \
    "let no result depend on timing: no measured constants, and routes by the number of ranks alone")                       \
  X(HOROVOD_TRANSPORT, transport, std::string, "auto", kJob,                                                                \
    "auto, shared_memory (ranks of one host) or mpi: what carries the bytes under MPI")                                     \
  X(HOROVOD_GPU_TRANSPORT, gpu_transport, std::string, "auto", kJob,                                                        \
    "auto, nccl or host: what carries the bytes of GPU tensors; auto is nccl where every rank can, else host")              \
  X(HOROVOD_SIMD, simd, std::string, "auto", kRank,                                                                         \
    "auto, baseline, x86-64-v3 or x86-64-v4: instruction set of the codec and reduction loops")                             \
  X(HOROVOD_TIMELINE, timeline, std::string, "", kFirstRank,                                                                \
    "file for a Chrome trace of every operation, written by rank 0; DYNAMIC: hvd.start_timeline() names one later")         \
  X(HOROVOD_TIMELINE_MARK_CYCLES, timeline_mark_cycles, bool, false, kFirstRank, "mark negotiation rounds in the timeline") \
  X(HOROVOD_STALL_CHECK_DISABLE, stall_check_disable, bool, false, kJob,                                                    \
    "do not warn of operations that some ranks have not asked for")                                                         \
  X(HOROVOD_STALL_CHECK_TIME_SECONDS, stall_check_time_seconds, double, 60.0, kJob,                                         \
    "seconds after which an operation that some ranks have not asked for is warned of")                                     \
  X(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, stall_shutdown_time_seconds, double, 0.0, kJob,                                    \
    "seconds after which such an operation ends the job; 0 = never")                                                        \
  X(HOROVOD_THREAD_AFFINITY, thread_affinity, std::string, "", kRank,                                                       \
    "processor core of the engine's thread: one for each local rank, comma-separated, or the first of as many")             \
  X(HOROVOD_MPI_THREADS_DISABLE, mpi_threads_disable, bool, false, kRank,                                                   \
    "start MPI without MPI_THREAD_MULTIPLE; then only horovod may call MPI after hvd.init()")                               \
  X(HOROVOD_LOG_LEVEL, log_level, std::string, "warning", kRank, "trace, debug, info, warning, error or fatal")             \
  X(HOROVOD_LOG_HIDE_TIME, log_hide_time, bool, false, kRank, "leave the time out of log lines")

struct Settings {
#define HVD_MEMBER(variable, member, type, default_value, scope, help) type member = default_value;
  HVD_FOR_EACH_SETTING(HVD_MEMBER)
#undef HVD_MEMBER

  // Defaults overridden by the environment. Throws InvalidArgument naming the variable and its value.
  static Settings from_environment();
  // Those of the job as text, by which ranks compare them.
  std::string of_job() const;
};

// Which cores the ranks have, and on which hosts, from every rank's text, in which lines core=... and host=... say so; empty
// if all have the same.
std::string disagreement_of_builds(const std::vector<std::string>& texts);

// Which of the job's settings differ, and on which ranks, from every rank's text; empty if none does.
std::string disagreement_of_settings(const std::vector<std::string>& texts);

struct SettingRow {
  std::string variable;
  std::string type;  // "int", "float", "bool" or "string"
  std::string default_text;
  std::string help;
};

std::vector<SettingRow> settings_table();

}  // namespace hvd
