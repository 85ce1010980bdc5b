// Kinds of the memory that the emulated runtime knows.
#pragma once

#include <cstddef>

namespace emulated_cuda {

enum class MemoryKind { kPageable, kPinned, kDevice };

// The kind of the whole range; false if it begins in known memory and reaches beyond its end.
bool kind_of(const void* memory, size_t bytes, MemoryKind* kind, int* device = nullptr);

}  // namespace emulated_cuda
