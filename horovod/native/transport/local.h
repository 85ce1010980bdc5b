// Transports without a launcher: a world of one rank, and ranks that are threads of one process.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/futex.h"
#include "transport/transport.h"

namespace hvd {

// The transport of a world of one.
class SelfTransport final : public Transport {
 public:
  const char* name() const override { return "self"; }
  const Topology& topology() const override { return topology_; }
  void post(int to, std::span<const std::byte> message) override;
  std::optional<Message> receive() override;
  void flush() override {}
  void wait(std::chrono::microseconds timeout, bool eager) override;
  void wake() override;
  void abandon(int) override {}
  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive) override;
  void progress() override {}
  void finish(Ticket) override {}
  void cancel() override {}
  uint64_t sign_of_life(int) override { return 0; }
  uint64_t moved() override { return 0; }

 private:
  const Topology topology_{.hosts = {{0}}};
  FutexCounter doorbell_;
  // Engine thread only.
  std::deque<Message> mail_;
  uint32_t heard_ = 0;
};

// Makes transports of ranks 0..size-1 that are threads of one process: the shared-memory transport over ordinary memory, so
// that tests need no launcher. `host_of` is the number of each rank's host, numbered in the order of their first ranks; empty:
// all ranks are on one host. Ranks of a host share a window if `with_windows`; otherwise they exchange messages, as hosts do.
std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_windows, const std::vector<int>& host_of);

}  // namespace hvd
