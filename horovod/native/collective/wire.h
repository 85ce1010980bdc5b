// The carrier of a reduction's messages from rank to rank: the transport (here), or NCCL (device/nccl_wire.h). Patterns are
// written against this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "collective/context.h"

namespace hvd {

class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  virtual ~Wire() = default;

  // Between ranks as the group numbers them, of what has been written so far; counts what goes to others. As of Transport.
  virtual Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       const std::shared_ptr<void>& keep_alive) = 0;
  // What is done from now on finds what has arrived.
  virtual void finish(Ticket ticket) = 0;
  // For the time between two pieces of work.
  virtual void progress() = 0;

  // Steps between two stages, which are under way together; and the bytes of a message that n parties exchange in a step:
  // enough to be worth sending, few enough that much is under way.
  virtual uint32_t lag() const = 0;
  virtual int64_t message_bytes(int parties) const = 0;
};

class RankWire final : public Wire {
 public:
  static constexpr uint32_t kMostLag = 8;

  explicit RankWire(CollectiveContext& context) : context_(context) {}

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive) override {
    for (const Outgoing& out : outgoing) context_.wire_bytes += static_cast<int64_t>(out.bytes);
    return context_.group.start(outgoing, incoming, keep_alive);
  }
  void finish(Ticket ticket) override { context_.group.finish(ticket); }
  void progress() override { context_.group.progress(); }
  uint32_t lag() const override { return context_.messages.steps; }
  int64_t message_bytes(int parties) const override {
    constexpr int64_t kLeast = int64_t{8} << 10, kAll = int64_t{1} << 20;
    return std::min(std::max(kAll / parties, kLeast), context_.messages.bytes);
  }

 private:
  CollectiveContext& context_;
};

}  // namespace hvd
