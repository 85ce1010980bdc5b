// What a rank without data contributes to a reduction, so that the others' result is what it would be without that rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "collective/reduce.h"

namespace hvd {

// As stored; the first size_of(dtype) bytes count. A contribution is scaled by `prescale` wherever it is read, and stays
// neutral there. Sum, Average and Adasum: zero. Product: one, whose scale must be 1 (see has_neutral_element).
std::array<std::byte, 8> neutral_element(DType dtype, ReduceOp op, double prescale);

// False for a product of scaled factors: no number of every dtype is 1 when it is scaled.
constexpr bool has_neutral_element(ReduceOp op, double prescale) { return op != ReduceOp::kProduct || prescale == 1.0; }

// Makes a tensor of one element again and again, by calls of fill(to, byte, bytes) and copy(to, from, bytes) alone: a GPU has
// both, and neither reads host memory.
template <typename Fill, typename Copy>
void repeat(const std::array<std::byte, 8>& element, size_t size, std::byte* memory, size_t bytes, Fill fill, Copy copy) {
  if (bytes == 0) return;
  if (std::all_of(element.begin(), element.begin() + size, [&](std::byte byte) { return byte == element[0]; })) {
    return fill(memory, std::to_integer<int>(element[0]), bytes);
  }
  for (size_t i = 0; i < size; ++i) fill(memory + i, std::to_integer<int>(element[i]), size_t{1});
  for (size_t done = size; done < bytes; done *= 2) copy(memory + done, memory, std::min(done, bytes - done));
}

}  // namespace hvd
