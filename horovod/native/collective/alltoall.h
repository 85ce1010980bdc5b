// Alltoall: every rank sends a run of bytes to every rank, and gets theirs in rank order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/context.h"

namespace hvd {

// What each rank will send here, of what each says it sends to whom: one number from and to every rank.
std::vector<int64_t> exchange_splits(CollectiveContext& context, std::span<const int64_t> splits);

// `sent[r]` bytes go from `source` to rank r, one after the other; `received[r]` come from it into `output`.
void alltoall(CollectiveContext& context, const void* source, std::span<const size_t> sent, std::span<const size_t> received,
              std::byte* output);

}  // namespace hvd
