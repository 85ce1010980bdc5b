// Operations that only move bytes: who sends what to whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/context.h"

namespace hvd {

// From every rank to every other, at once.
struct Movement {
  struct Part {
    size_t offset = 0, bytes = 0;
  };
  const std::byte* source = nullptr;
  std::byte* destination = nullptr;
  std::vector<Part> sent, received;  // by rank, this one included: of the source, and of the destination

  // How much of the source is sent, and of the destination filled.
  size_t source_bytes() const { return end_of(sent); }
  size_t destination_bytes() const { return end_of(received); }

 private:
  static size_t end_of(std::span<const Part> parts);
};

// All that `rank` has goes to all; what they have lies in a row there. `bytes` are by rank.
Movement allgather(const void* own, std::span<const size_t> bytes, int rank, std::byte* all);
// A run of bytes for each rank, and one from each, both in a row. `sent` and `received` are by rank.
Movement alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received, std::byte* destination);

// Carries it out, in memory of the CPU.
void move(CollectiveContext& context, const Movement& movement);

// What each rank will send here, of what each says it sends to whom: one number from and to every rank.
std::vector<int64_t> exchange_splits(CollectiveContext& context, std::span<const int64_t> splits);

// The root's bytes on every rank, down a binomial tree in chunks. On the root, `data` is sent; elsewhere it is filled.
void broadcast(CollectiveContext& context, int root, void* data, size_t bytes);

}  // namespace hvd
