// The state that all collectives of an engine share. Belongs to one engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/simd.h"
#include "collective/layout.h"
#include "transport/rank_group.h"
#include "transport/transfer.h"

namespace hvd {

// Uninitialised memory that grows on demand.
class Scratch {
 public:
  std::byte* at_least(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(new std::byte[bytes]);  // uninitialised, unlike make_shared
      bytes_ = bytes;
    }
    return memory_.get();
  }
  // Keep a copy of this pointer to use the memory beyond the operation.
  const std::shared_ptr<std::byte[]>& memory() const { return memory_; }

 private:
  std::shared_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

// The phases of a collective, for timelines.
enum class Phase { kPack, kCommunicate, kReduce, kUnpack };

// Settings of messages, the same on every rank.
struct MessageRules {
  int64_t bytes = kPromptBytes;  // at most in one message
  uint32_t steps = 8;            // under way at a time
  int carriers = 16;             // most ranks of a host that exchange with other hosts
};

struct CollectiveContext {
  CollectiveContext(RankGroup ranks, SimdLevel level) : group(std::move(ranks)), simd(level) {}

  RankGroup group;
  SimdLevel simd;
  MessageRules messages;
  int64_t wire_bytes = 0;  // handed to other ranks so far
  Scratch send, receive;
  std::unique_ptr<Tiles> tiles = std::make_unique<Tiles>();
  std::function<void(Phase)> on_phase;  // empty unless a listener wants timelines

  void enter(Phase phase) const {
    if (on_phase) on_phase(phase);
  }
};

// Removes the phase callback at the end of an operation, also after an exception.
class WatchedPhases {
 public:
  explicit WatchedPhases(CollectiveContext& context) : context_(context) {}
  ~WatchedPhases() { context_.on_phase = nullptr; }
  WatchedPhases(const WatchedPhases&) = delete;

 private:
  CollectiveContext& context_;
};

}  // namespace hvd
