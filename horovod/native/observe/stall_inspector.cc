#include "observe/stall_inspector.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr size_t kNamesShown = 6;

std::string seconds_text(StallInspector::Seconds seconds) { return std::to_string(std::llround(seconds.count())) + " s"; }

std::string names_text(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return first_few(names, kNamesShown, "more");
}

using std::chrono::duration_cast;

// An idle engine gives two signs of life a second.
constexpr StallLimits::Seconds kShortestSilence{1.0};
constexpr std::chrono::milliseconds kShortestPeriod{200}, kLongestPeriod{2000};

}  // namespace

StallReport StallInspector::inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete) {
  std::map<int, std::vector<std::string>> names_by_rank;
  std::set<int> fatal;
  Seconds longest{0};
  for (const StalledOperation& operation : incomplete) {
    const Seconds waiting = operation.waiting;
    longest = std::max(longest, waiting);
    if (waiting < limits_.warn_after) continue;
    for (const int rank : operation.missing_ranks) {
      names_by_rank[rank].push_back(operation.name);
      if (limits_.end_after.count() > 0 && waiting >= limits_.end_after) fatal.insert(rank);
    }
  }
  StallReport report;
  report.must_shut_down = !fatal.empty();
  const bool is_due = last_warning_ == decltype(last_warning_){} || now - last_warning_ >= limits_.warn_after;
  if (names_by_rank.empty() || (!is_due && fatal.empty())) return report;
  last_warning_ = now;
  report.warning = "some ranks wait for others, the longest for " + seconds_text(longest) +
                   ": not every rank has asked for the operations below. Ranks may differ in control flow, have died, or "
                   "use an optimizer or a loader of another length.\nMissing ranks:";
  for (auto& [rank, names] : names_by_rank) {
    report.missing.push_back(rank);
    report.names.push_back(names_text(names));
    report.warning += "\n" + std::to_string(rank) + (fatal.count(rank) ? "!" : "") + ": [" + report.names.back() + "]";
  }
  if (!fatal.empty()) report.warning += "\nThe job ends, as " + limits_.end_asked_by + " asks (ranks with !).";
  return report;
}

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
