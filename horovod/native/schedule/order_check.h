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
  struct Place {
    std::vector<std::string> names;  // by position in the process set; "" of a rank that has not come here
    size_t count = 0;                // of ranks that have
    bool is_begun = false;           // some rank does not wait for the others to come here
    bool differs = false;            // of names that are known
  };

  explicit OrderCheck(size_t ranks) : next_(ranks, 0) {}

  // The next request of the rank at a position. One whose name is not known, "", agrees with all.
  void add(size_t position, const std::string& name, bool is_begun);
  // Of places where operations are begun, or that all ranks have come to since, those where names differ.
  std::vector<Place> take_differing();

 private:
  std::deque<Place> places_;    // that not all ranks have come to
  uint64_t first_ = 0;          // the number of the first of them
  std::vector<uint64_t> next_;  // by position
};

}  // namespace hvd
