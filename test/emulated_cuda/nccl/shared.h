// What the ranks of an emulated communicator share: a piece of memory that each maps, whether thread or process. Bytes go
// through a ring for each ordered pair of ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated_nccl {

inline constexpr int kMostRanks = 8;

// Bytes from one rank to another, in order.
class Ring {
 public:
  static constexpr size_t kBytes = 1 << 18;
  // How many bytes went in or came out, which may be none.
  size_t write(const char* from, size_t bytes);
  size_t read(char* to, size_t bytes);

 private:
  alignas(64) std::atomic<uint64_t> written_;
  alignas(64) std::atomic<uint64_t> read_;
  char bytes_[kBytes];
};

struct RankState {
  std::atomic<int> has_joined;
  std::atomic<int> is_gone;  // has aborted
  std::atomic<int> has_called;  // has submitted an operation
  int size;                  // as it was told
  char device[16];
};

// Begins as zeros, which all of it takes for a beginning.
struct Shared {
  RankState ranks[kMostRanks];
  std::atomic<int> joined;  // of the ranks' joining: 1 fine, 2 two ranks on one GPU, 3 they disagree about their number
  Ring rings[kMostRanks][kMostRanks];  // [from][to]
};

// Maps the memory of that name, and makes it if nobody has.
Shared* map_shared(const std::string& name);
void unmap_shared(Shared* shared);
// Takes the name away; the memory stays with those who have it.
void forget_shared(const std::string& name);

}  // namespace emulated_nccl
