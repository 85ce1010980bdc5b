#include "observe/stall_inspector.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace hvd {
namespace {

constexpr size_t kNamesShown = 6;

std::string seconds_text(StallInspector::Seconds seconds) { return std::to_string(std::llround(seconds.count())) + " s"; }

std::string names_text(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= kNamesShown ? text : text + " and " + std::to_string(names.size() - kNamesShown) + " more";
}

}  // namespace

StallReport StallInspector::inspect(std::chrono::steady_clock::time_point now, std::span<const StalledOperation> incomplete) {
  std::map<int, std::vector<std::string>> names_by_rank;
  std::set<int> fatal;
  Seconds longest{0};
  for (const StalledOperation& operation : incomplete) {
    const Seconds waiting = operation.waiting;
    longest = std::max(longest, waiting);
    if (waiting < warn_after_) continue;
    for (const int rank : operation.missing_ranks) {
      names_by_rank[rank].push_back(operation.name);
      if (shut_down_after_.count() > 0 && waiting >= shut_down_after_) fatal.insert(rank);
    }
  }
  StallReport report;
  report.must_shut_down = !fatal.empty();
  const bool is_due = last_warning_ == decltype(last_warning_){} || now - last_warning_ >= warn_after_;
  if (names_by_rank.empty() || (!is_due && fatal.empty())) return report;
  last_warning_ = now;
  report.warning = "some ranks wait for others, the longest for " + seconds_text(longest) +
                   ": not every rank has asked for the operations below. Ranks may differ in control flow, have died, or "
                   "use an optimizer or a loader of another length.\nMissing ranks:";
  for (auto& [rank, names] : names_by_rank) {
    report.warning += "\n" + std::to_string(rank) + (fatal.count(rank) ? "!" : "") + ": [" + names_text(names) + "]";
  }
  if (!fatal.empty()) report.warning += "\nThe job ends, as " + end_asked_by_ + " asks (ranks with !).";
  return report;
}

}  // namespace hvd
