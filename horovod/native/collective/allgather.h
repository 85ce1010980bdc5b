// Allgather: every rank's bytes, concatenated in rank order. Sizes may differ and are known to all beforehand.
#pragma once

#include <span>

#include "collective/context.h"

namespace hvd {

// `bytes[r]` is rank r's size; `output` has room for their sum.
void allgather(CollectiveContext& context, const void* source, std::span<const size_t> bytes, std::byte* output);

}  // namespace hvd
