// The carrier of a reduction's messages between ranks: the transport (RankWire) or NCCL (device/nccl_wire.h). Belongs to one
// thread.
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

  // Starts transfers between ranks of the group, and counts the bytes sent to others. See Transport::start().
  virtual Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       const std::shared_ptr<void>& keep_alive) = 0;
  // Waits until the transfers are done. Work that starts afterwards sees the received data.
  virtual void finish(Ticket ticket) = 0;
  // Advances transfers; call it between two pieces of work.
  virtual void progress() = 0;

  // lag(): the steps between two stages, which are under way at once. message_bytes(): the message size if n parties exchange
  // in a step; large enough to be efficient, small enough that several are under way.
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
