// The context of every collective. Belongs to one engine thread.
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

// Bytes that are allocated when first needed, grow, and are never filled for their own sake.
class Scratch {
 public:
  std::byte* at_least(size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(new std::byte[bytes]);  // uninitialised, unlike make_shared
      bytes_ = bytes;
    }
    return memory_.get();
  }
  // To be kept by whoever may use it for longer.
  const std::shared_ptr<std::byte[]>& memory() const { return memory_; }

 private:
  std::shared_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

// What a collective is busy with, for whoever draws timelines.
enum class Phase { kPack, kCommunicate, kReduce, kUnpack };

// What settings say about messages; every rank has the same.
struct MessageRules {
  int64_t bytes = kPromptBytes;  // that one has at most
  uint32_t steps = 8;            // that are under way at a time
  int carriers = 16;             // ranks of a host that exchange with other hosts, at most
};

struct CollectiveContext {
  CollectiveContext(RankGroup ranks, SimdLevel level) : group(std::move(ranks)), simd(level) {}

  RankGroup group;
  SimdLevel simd;
  MessageRules messages;
  int64_t wire_bytes = 0;  // handed to other ranks so far
  Scratch send, receive;
  std::unique_ptr<Tiles> tiles = std::make_unique<Tiles>();
  std::function<void(Phase)> on_phase;  // empty unless somebody watches

  void enter(Phase phase) const {
    if (on_phase) on_phase(phase);
  }
};

// Nobody watches any more when this goes, however the operation ends.
class WatchedPhases {
 public:
  explicit WatchedPhases(CollectiveContext& context) : context_(context) {}
  ~WatchedPhases() { context_.on_phase = nullptr; }
  WatchedPhases(const WatchedPhases&) = delete;

 private:
  CollectiveContext& context_;
};

}  // namespace hvd
