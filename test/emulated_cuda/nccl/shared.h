// The memory that ranks of an emulated communicator share. Each rank, a thread or a process, maps it. Bytes go through a ring
// for each ordered pair of ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated_nccl {

inline constexpr int kMostRanks = 8;

// Sends bytes from one rank to another, in order.
class Ring {
 public:
  static constexpr size_t kBytes = 1 << 18;
  // The number of bytes that went in or came out, which may be 0.
  size_t write(const char* from, size_t bytes);
  size_t read(char* to, size_t bytes);

 private:
  alignas(64) std::atomic<uint64_t> written_;
  alignas(64) std::atomic<uint64_t> read_;
  char bytes_[kBytes];
};

struct RankState {
  std::atomic<int> has_joined;
  std::atomic<int> is_gone;  // the rank has aborted
  std::atomic<int> has_called;  // the rank has submitted an operation
  int size;                  // as given to the rank
  char device[16];
};

// The memory begins as zeros, which are a valid initial state of all fields.
struct Shared {
  RankState ranks[kMostRanks];
  std::atomic<int> joined;  // result of the ranks' joining: 1 fine, 2 two ranks on one GPU, 3 they disagree about their number
  Ring rings[kMostRanks][kMostRanks];  // [from][to]
};

// Maps the memory of that name, and creates it if it does not exist.
Shared* map_shared(const std::string& name);
void unmap_shared(Shared* shared);
// Unlinks the name; ranks that have mapped the memory keep it.
void forget_shared(const std::string& name);

}  // namespace emulated_nccl
