// Texts of lists, for errors and logs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace hvd {

// The texts of the items, with a separator between two.
template <typename Items, typename Text = std::identity>
std::string joined(const Items& items, const char* separator, Text text = {}) {
  std::string all;
  for (const auto& item : items) all.append(all.empty() ? "" : separator).append(text(item));
  return all;
}
// The texts of the first items, then "and 3 <rest>" if there are more.
template <typename Items, typename Text = std::identity>
std::string first_few(const Items& items, size_t most, const char* rest, Text text = {}) {
  const size_t shown = std::min(items.size(), most);
  const std::string few = joined(std::span(items).first(shown), ", ", text);
  return shown == items.size() ? few : few + " and " + std::to_string(items.size() - shown) + " " + rest;
}
inline std::string number_text(int64_t number) { return std::to_string(number); }

// "rank 1", "ranks 1, 2"; of more than 16 ranks, the first 16 and "and 3 more".
std::string ranks_text(const std::vector<int>& ranks);
// Each value once with its ranks; at most 16 values. `values` are by position in `ranks`.
std::string by_rank(const std::vector<int>& ranks, const std::vector<std::string>& values);

}  // namespace hvd
