// What codecs and their kernels are called with, beside the elements. Apart from codec.h for what that includes: kernels are
// compiled many times over.
#pragma once

#include <cstdint>

namespace hvd {

// Where a stochastic codec takes its random numbers from: element i of a run rounds by number `first + i` of the stream `key`.
// The numbers depend on nothing else, so a tensor is encoded alike however it is cut and whenever its turn comes.
struct Draw {
  uint64_t key = 0;
  int64_t first = 0;
};

// Encoded elements of two ranks, as many of each.
struct TwoRuns {
  const uint8_t* first;
  const uint8_t* second;
};

}  // namespace hvd
