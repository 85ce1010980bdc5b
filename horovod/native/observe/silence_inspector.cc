#include "observe/silence_inspector.h"

#include <algorithm>

namespace hvd {
namespace {

using std::chrono::duration_cast, std::chrono::milliseconds;

// An idle engine shows life twice a second.
constexpr StallLimits::Seconds kShortestSilence{1.0};
constexpr milliseconds kShortestPeriod{200}, kLongestPeriod{2000};

}  // namespace

SilenceInspector::SilenceInspector(const StallLimits& limits)
    : is_on_(limits.is_on),
      warn_after_(duration_cast<Duration>(std::max(limits.warn_after, kShortestSilence))),
      end_after_(limits.end_after.count() == 0 ? Duration(0)
                                               : duration_cast<Duration>(std::max(limits.end_after, kShortestSilence))),
      period_(std::clamp(warn_after_ / 20, Duration(kShortestPeriod), Duration(kLongestPeriod))) {}

SilenceReport SilenceInspector::inspect(TimePoint now, std::span<const SignOfLife> awaited, uint64_t moved) {
  watched_ += std::min(now - last_look_, 2 * period_);
  last_look_ = now;
  const bool has_moved = moved_ != moved;
  moved_ = moved;
  std::map<int, Heard> heard;
  std::vector<std::pair<Duration, int>> silent;
  for (const auto& [rank, sign] : awaited) {
    const auto before = heard_.find(rank);
    const bool is_alive = has_moved || before == heard_.end() || before->second.sign != sign;
    const Heard& last = heard[rank] = {sign, is_alive ? watched_ : before->second.at};
    if (watched_ - last.at >= warn_after_) silent.push_back({watched_ - last.at, rank});
  }
  heard_ = std::move(heard);
  SilenceReport report;
  if (silent.empty()) {
    last_warning_ = Duration(0);
    return report;
  }
  std::sort(silent.begin(), silent.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  for (const auto& [time, rank] : silent) report.silent.push_back(rank);
  report.longest = silent.front().first;
  report.must_end = end_after_ != Duration(0) && silent.front().first >= end_after_;
  report.is_due = last_warning_ == Duration(0) || watched_ - last_warning_ >= warn_after_;
  if (report.is_due) last_warning_ = watched_;
  return report;
}

std::vector<int> SilenceInspector::silent_for(StallLimits::Seconds time) const {
  std::vector<int> ranks;
  for (const auto& [rank, last] : heard_) {
    if (watched_ - last.at >= time) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace hvd
