#include "schedule/liveness_monitor.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "schedule/operations.h"

namespace hvd {
LivenessMonitor::LivenessMonitor(Transport& transport, const ProcessSets& sets, const InFlight& in_flight,
                                 const StallLimits& limits, const Log& log)
    : transport_(transport), sets_(sets), in_flight_(in_flight), limits_(limits), log_(log), inspector_(limits) {}

void LivenessMonitor::look_inside(TimePoint now) {
  if (!is_due(now)) return;
  const SilenceReport report = inspect(now, all_others());
  if (!report.is_due && !report.must_end) return;
  warn_or_end(report,
              under_way_.empty() ? "tells the others what all have agreed on" : "carries out " + description_of(under_way_));
}

void LivenessMonitor::look_between(TimePoint now, bool is_leaving) {
  // This rank's GPU may wait for another rank's.
  if (const std::string on_gpu = in_flight_.first(); !on_gpu.empty()) {
    const SilenceReport report = inspect(now, all_others());
    if (report.is_due || report.must_end) warn_or_end(report, "has on its GPU " + on_gpu);
    return;
  }
  if (transport_.rank() == 0) {
    inspect(now, missing(now));  // only for accuse(): the stall inspector reports missing ranks
    return;
  }
  const std::string asked_for = announced();
  const bool is_waiting = is_leaving || !asked_for.empty();
  const SilenceReport report = inspect(now, is_waiting ? std::vector<int>{0} : std::vector<int>{});
  if (!report.is_due && !report.must_end) return;
  warn_or_end(report,
              "waits for rank 0, which coordinates all, to answer for " + (asked_for.empty() ? "its shutdown()" : asked_for));
}

SilenceReport LivenessMonitor::inspect(TimePoint now, const std::vector<int>& awaited) {
  std::vector<SignOfLife> signs;
  for (const int rank : awaited) signs.push_back({rank, transport_.sign_of_life(rank)});
  return inspector_.inspect(now, signs, transport_.moved() + in_flight_.ended());
}

void LivenessMonitor::warn_or_end(const SilenceReport& report, const std::string& doing) {
  const std::string here = "rank " + std::to_string(transport_.rank()), silent = described(report.silent);
  const std::string time = std::to_string(std::llround(report.longest.count())) + " s";
  if (!report.must_end) {
    HVD_LOG(log_, kWarning,
            "no sign of life of " << silent << " for " << time << ", while " << here << " " << doing
                                  << ". Likely causes: it was stopped, waits for a disk or a network file system, gets no "
                                     "processor time, or its host or the network to it is lost");
    return;
  }
  lost_ = report.silent.front();
  throw InternalError(Said::silent, {.ranks = {lost_},
                                     .others = {{"rank", transport_.rank()},
                                                {"who", silent},
                                                {"seconds", std::llround(report.longest.count())},
                                                {"doing", doing},
                                                {"setting", limits_.end_asked_by}}});
}

std::string LivenessMonitor::accuse(std::span<const StalledOperation> incomplete) const {
  std::set<int> missing;
  for (const StalledOperation& operation : incomplete) {
    missing.insert(operation.missing_ranks.begin(), operation.missing_ranks.end());
  }
  std::vector<int> silent;
  for (const int rank : inspector_.silent_for(limits_.end_after / 2)) {
    if (missing.contains(rank)) silent.push_back(rank);
  }
  return silent.empty() ? "" : "\nNo sign of life of " + described(silent);
}

std::string LivenessMonitor::described(std::span<const int> ranks) const {
  return first_few(ranks, 6, "others", [this](int rank) { return transport_.describe(rank); });
}

// Not only the ranks of the operation, since they may themselves wait for others.
std::vector<int> LivenessMonitor::all_others() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank != transport_.rank()) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> LivenessMonitor::missing(TimePoint now) const {
  std::set<int> ranks;
  for (const auto& [serial, set] : sets_.all()) {
    for (const StalledOperation& one : set->coordinator().incomplete(now))
      ranks.insert(one.missing_ranks.begin(), one.missing_ranks.end());
  }
  ranks.erase(transport_.rank());
  return {ranks.begin(), ranks.end()};
}

// The announced operations without a response: "'x' and 3 others", or "".
std::string LivenessMonitor::announced() const {
  std::vector<std::string> names;
  for (const auto& [serial, set] : sets_.all()) set->add_announced(&names);
  if (names.empty()) return "";
  std::swap(names.front(), *std::min_element(names.begin(), names.end()));
  return first_few(names, 1, "others", [](const std::string& name) { return "'" + name + "'"; });
}

}  // namespace hvd
