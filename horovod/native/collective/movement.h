// Operations that only move bytes, and the description of their transfers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/context.h"

namespace hvd {

// A transfer from every rank to every other at once.
struct Movement {
  struct Part {
    size_t offset = 0, bytes = 0;
  };
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::vector<Part> sent, received;  // by rank, including this one: parts of the source, parts of the destination

  // Bytes of the source that are sent, and of the destination that are filled.
  size_t source_bytes() const { return end_of(sent); }
  size_t destination_bytes() const { return end_of(received); }

 private:
  static size_t end_of(std::span<const Part> parts);
};

// Every rank sends `own` to all; the parts lie in rank order in `all`. `bytes` are by rank.
Movement allgather(const void* own, std::span<const size_t> bytes, int rank, std::byte* all);
// Every rank sends each rank a part of its source; the parts lie in rank order at both ends. `sent` and `received` are by rank.
Movement alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received, std::byte* destination);

// Carries out a movement in CPU memory.
void move(CollectiveContext& context, const Movement& movement);

// Tells every rank how much this rank sends to it. Returns how much every rank sends here, by rank.
std::vector<int64_t> exchange_splits(CollectiveContext& context, std::span<const int64_t> splits);

// Copies the root's bytes to every rank, down a binomial tree in chunks. `data` is filled on all ranks but the root.
void broadcast(CollectiveContext& context, int root, void* data, size_t bytes);

}  // namespace hvd
