// Deadlock detection on rank 0: finds callers of different ranks that wait for each other in a cycle. No threads, clock or
// transport.
//
// Most waits end when all ranks have requested the operation. But two ranks whose backward passes made gradients of different
// parameters request each other's only in step(). Such a wait is marked `may_yield`, and is released if it is part of a cycle.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hvd {

// A caller that waits for an operation.
struct BlockedCaller {
  int rank = 0;
  uint32_t set = 0;  // serial
  std::string name;  // of the operation
  bool may_yield = false;
};

class Deadlocks {
 public:
  // The ranks that have not requested the caller's operation; empty when all have.
  using Missing = std::function<std::vector<int>(const BlockedCaller& caller)>;

  // Replaces the rank's earlier caller, since only its training thread could still request operations.
  void block(BlockedCaller caller);
  // The rank has requested an operation.
  void unblock(int rank);
  // Removes and returns the callers that may yield and are part of a cycle.
  std::vector<BlockedCaller> take_released(const Missing& missing);

 private:
  bool is_news_ = false;  // block() was called since the last take_released()
  std::map<int, BlockedCaller> callers_;
};

}  // namespace hvd
