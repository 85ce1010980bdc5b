#include "base/error.h"

#include <utility>

namespace hvd {

std::string by_rank(const std::vector<int>& ranks, const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t g = 0;
    while (g < groups.size() && groups[g].first != values[i]) ++g;
    if (g == groups.size()) groups.push_back({values[i], {}});
    groups[g].second.push_back(ranks[i]);
  }
  std::string text;
  for (const auto& [value, members] : groups) {
    text += (text.empty() ? "" : "; ") + std::string(members.size() == 1 ? "rank " : "ranks ");
    for (size_t i = 0; i < members.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(members[i]);
    text += ": " + value;
  }
  return text;
}

}  // namespace hvd
