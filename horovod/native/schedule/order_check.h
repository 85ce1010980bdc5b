// Whether ranks that promised to ask for the same operations in one order do: their requests, counted by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace hvd {

class OrderCheck {
 public:
  using Names = std::vector<std::string>;  // by position in the process set

  explicit OrderCheck(size_t ranks) : next_(ranks, 0) {}

  // The next request of the rank at a position. One whose name is not known, "", agrees with all.
  void add(size_t position, const std::string& name);
  // Of places that all ranks have come to since, the names at those where they differ.
  std::vector<Names> take_differing();

 private:
  struct Place {
    Names names;
    size_t count = 0;
  };

  std::deque<Place> places_;    // that not all ranks have come to
  uint64_t first_ = 0;          // the number of the first of them
  std::vector<uint64_t> next_;  // by position
};

}  // namespace hvd
