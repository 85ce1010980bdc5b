// Bytes between ranks. One engine thread owns a transport and makes all calls but wake(), which any thread may make.
//
// Two kinds of traffic, independent of each other:
//   messages   small, for negotiation: post() never waits for the receiver, and each sender's arrive in order
//   bulk data  exchange(): called by all ranks of an operation at the same point of the same sequence of operations
// Ranks that share memory also have a Window, through which collectives read each other's data directly.
//
// Failures throw InternalError; after one the transport is good for nothing but destruction.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/link_costs.h"
#include "transport/window.h"

namespace hvd {

// Where a rank stands in its job. Local: among the ranks of its host. Cross: among the ranks with its local rank.
struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;  // every host has the same number of ranks
};

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

// One transfer of an exchange. Zero bytes transfer nothing.
struct Outgoing {
  int to;
  const void* data;
  size_t bytes;
};
struct Incoming {
  int from;
  void* data;
  size_t bytes;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  virtual const Topology& topology() const = 0;
  virtual Window* window() { return nullptr; }

  virtual void post(int to, std::span<const std::byte> message) = 0;
  virtual std::optional<Message> receive() = 0;
  // Returns when every posted message has left for its receiver. Must precede bulk data that waits on the receiver.
  virtual void flush() = 0;
  // Sleeps until a message may have arrived, wake() was called, or the timeout passed. `eager` says that somebody waits for
  // what comes next: then it stays awake for a while, or polls in short intervals.
  virtual void wait(std::chrono::microseconds timeout, bool eager) = 0;
  virtual void wake() = 0;

  // Tells the other ranks that this one cannot go on: what they wait for from it throws InternalError.
  virtual void abandon() = 0;

  // Starts all transfers together and returns when all are complete. Between two ranks at most one transfer in each
  // direction, and the byte counts of the two sides are equal.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) = 0;
  // Has `serve` called while exchange() waits. It may post and receive messages.
  void serve_while_waiting(std::function<void()> serve) { serve_ = std::move(serve); }

  // As measured when the job started, the same on all ranks.
  const LinkCosts& links() const { return links_; }
  void know_links(const LinkCosts& links) { links_ = links; }

  int rank() const { return topology().rank; }
  int size() const { return topology().size; }

 protected:
  std::function<void()> serve_ = [] {};

 private:
  LinkCosts links_;
};

}  // namespace hvd
