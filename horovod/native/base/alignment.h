// Where messages start in memory that is shared out among several: at cache lines.
#pragma once

#include <cstddef>

namespace hvd {

inline constexpr size_t kAlign = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace hvd
