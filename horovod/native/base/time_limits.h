// Made of horovod/common/time_limits.py by build_support/generated_headers.py: change that table.
#pragma once

#include <chrono>

// For how long a process waits for another before it acts. The table has the reasons.
namespace hvd::time_limits {

constexpr std::chrono::milliseconds kBetweenInspections{250};
constexpr std::chrono::milliseconds kFarewell{1000};
constexpr std::chrono::milliseconds kGpuFarewell{30000};
constexpr std::chrono::milliseconds kGpuSettles{5000};
constexpr std::chrono::milliseconds kHandshake{15000};
constexpr std::chrono::milliseconds kHearsReason{100};
constexpr std::chrono::milliseconds kIdle{500};
constexpr std::chrono::milliseconds kNcclEnd{10000};
constexpr std::chrono::milliseconds kNcclStart{180000};
constexpr std::chrono::milliseconds kProcessLook{500};
constexpr std::chrono::milliseconds kRankBeat{500};
constexpr std::chrono::milliseconds kStallLook{500};
constexpr std::chrono::milliseconds kTimelineEnd{10000};

}  // namespace hvd::time_limits
