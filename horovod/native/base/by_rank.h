// Who of the ranks has what, for errors.
#pragma once

#include <string>
#include <vector>

namespace hvd {

// "rank 0: 64; ranks 1, 2: 128": each value once, in the order of the first rank that has it. `values` are by position in
// `ranks`.
std::string by_rank(const std::vector<int>& ranks, const std::vector<std::string>& values);

}  // namespace hvd
