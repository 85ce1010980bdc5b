// Rank 0's account of callers that wait: which of them wait for each other in a circle.
//
// Most waits end by themselves, as all ranks come to ask for the operation. Two ranks whose backward passes made gradients
// of different parameters would wait for each other for ever, though: each asks for the other's in step() only. Such a wait
// says that it may yield, and is let go on as soon as it is part of a circle. No threads, no clock, no transport.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hvd {

// A caller that does nothing else until an operation is done.
struct BlockedCaller {
  int rank = 0;
  uint32_t set = 0;  // serial
  std::string name;  // of the operation
  bool may_yield = false;
};

class Deadlocks {
 public:
  // The ranks that have not asked for what the caller waits for; none once all have.
  using Missing = std::function<std::vector<int>(const BlockedCaller& caller)>;

  // Of each rank the latest counts: a rank that waits has one training thread that could still ask for anything.
  void block(BlockedCaller caller);
  // The rank has asked for something new.
  void unblock(int rank);
  // Takes those out that may yield and are part of a circle of ranks that wait for each other.
  std::vector<BlockedCaller> take_released(const Missing& missing);

 private:
  bool is_news_ = false;  // since the last look
  std::map<int, BlockedCaller> callers_;
};

}  // namespace hvd
