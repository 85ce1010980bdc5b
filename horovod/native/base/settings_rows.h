// Made of horovod/common/options by build_support/settings_rows.py when the core is built: change that table.
#pragma once

// X(variable, member, type, default, reader of settings.cc, whether all ranks must have the same, whether it
// may change while a job runs)
//
// clang-format off
#define HVD_FOR_EACH_SETTING(X) \
  X(HOROVOD_FUSION_THRESHOLD, fusion_threshold, int64_t, 134217728, in_range<int64_t>(0, 9223372036854775807), true, true) \
  X(HOROVOD_CYCLE_TIME, cycle_time, double, 1, in_range<double>(0, 1000000000), false, true) \
  X(HOROVOD_CACHE_CAPACITY, cache_capacity, int64_t, 1024, in_range<int64_t>(0, 9223372036854775807), true, false) \
  X(HOROVOD_DISABLE_GROUP_FUSION, disable_group_fusion, bool, false, on_or_off(), true, false) \
  X(HOROVOD_ALLREDUCE_ALGORITHM, allreduce_algorithm, std::string, "auto", one_of_by_size("auto, gather, scatter, ring, hierarchical"), true, true) \
  X(HOROVOD_HIERARCHICAL_ALLREDUCE, hierarchical_allreduce, bool, false, on_or_off(), false, false) \
  X(HOROVOD_TORUS_ALLREDUCE, torus_allreduce, bool, false, on_or_off(), false, false) \
  X(HOROVOD_DETERMINISTIC, deterministic, bool, false, on_or_off(), true, false) \
  X(HOROVOD_TRANSPORT, transport, std::string, "auto", one_of("auto, shared_memory, mpi, tcp"), true, false) \
  X(HOROVOD_TCP_CONNECTIONS, tcp_connections, int64_t, 1, in_range<int64_t>(1, 16), true, true) \
  X(HOROVOD_MESSAGE_KB, message_kb, int64_t, 48, in_range<int64_t>(1, 1024), true, true) \
  X(HOROVOD_STEPS_UNDER_WAY, steps_under_way, int64_t, 8, in_range<int64_t>(1, 8), true, true) \
  X(HOROVOD_CARRIERS, carriers, int64_t, 16, in_range<int64_t>(1, 16), true, true) \
  X(HOROVOD_TCP_TIMEOUT_SECONDS, tcp_timeout_seconds, double, 10, in_range<double>(0, 1000000000), true, false) \
  X(HOROVOD_TCP_CHECKSUMS, tcp_checksums, bool, false, on_or_off(), true, false) \
  X(HOROVOD_GPU_TRANSPORT, gpu_transport, std::string, "auto", one_of("auto, nccl, host"), true, false) \
  X(HOROVOD_SIMD, simd, std::string, "auto", one_of("auto, baseline, x86-64-v3, x86-64-v4"), false, false) \
  X(HOROVOD_TIMELINE, timeline, std::string, "", any_text(), false, false) \
  X(HOROVOD_TIMELINE_MARK_CYCLES, timeline_mark_cycles, bool, false, on_or_off(), false, false) \
  X(HOROVOD_LOG_LEVEL, log_level, std::string, "warning", one_of("trace, debug, info, warning, error, fatal"), false, false) \
  X(HOROVOD_LOG_HIDE_TIME, log_hide_time, bool, false, on_or_off(), false, false) \
  X(HOROVOD_STALL_CHECK_DISABLE, stall_check_disable, bool, false, on_or_off(), true, false) \
  X(HOROVOD_STALL_CHECK_TIME_SECONDS, stall_check_time_seconds, double, 60, in_range<double>(0, 1000000000), true, false) \
  X(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, stall_shutdown_time_seconds, double, 0, in_range<double>(0, 1000000000), true, false) \
  X(HOROVOD_THREAD_AFFINITY, thread_affinity, std::string, "", any_text(), false, false) \
  X(HOROVOD_MPI_THREADS_DISABLE, mpi_threads_disable, bool, false, on_or_off(), false, false)
