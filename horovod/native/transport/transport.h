// Bytes between ranks. One engine thread owns a transport and makes all calls but wake(), which any thread may make.
//
// Two kinds of traffic, independent of each other:
//   messages   small, for negotiation: post() never waits for the receiver, and each sender's arrive in order
//   bulk data  start() and finish(): transfers that go on while this rank works; what one rank sends to another arrives in
//              the order in which both have started it
// Ranks that share memory also have a Window, through which collectives read each other's data directly.
//
// Failures throw InternalError; after one the transport is good for nothing but cancel(), abandon() and destruction.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/topology.h"
#include "transport/transfer.h"
#include "transport/window.h"

namespace hvd {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  virtual const Topology& topology() const = 0;
  virtual Window* window() { return nullptr; }  // of all ranks, by rank; null where they share no memory
  // Of the ranks of this host, by local rank. Either all ranks have one or none has.
  Window* host_window() { return host_window_.get(); }
  void add_host_window(std::unique_ptr<Window> window) { host_window_ = std::move(window); }

  virtual void post(int to, std::span<const std::byte> message) = 0;
  virtual std::optional<Message> receive() = 0;
  // Returns when every posted message has left for its receiver. Must precede bulk data that waits on the receiver.
  virtual void flush() = 0;
  // Sleeps until a message may have arrived, wake() was called, or the timeout passed. `eager` says that somebody waits for
  // what comes next: then it stays awake for a while, or polls in short intervals.
  virtual void wait(std::chrono::microseconds timeout, bool eager) = 0;
  virtual void wake() = 0;

  // Tells the other ranks that this one cannot go on: what they wait for from it throws InternalError. `silent`: because it
  // hears nothing of that rank any more, which their errors then name; as it is without it, if another rank has said so.
  virtual void abandon(int silent = kNoRank) = 0;

  // Starts transfers. Two ranks start those of one direction between them in the same order, with the same byte counts.
  // Until finish() or cancel() the memory stays as it is; `keep_alive` may own it.
  virtual Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       const std::shared_ptr<void>& keep_alive = {}) = 0;
  // Moves what can be moved without waiting: for the time between two pieces of work.
  virtual void progress() = 0;
  // The same for a rank that waits for something of its own, such as a GPU: others are served too.
  void attend() { progress(), serve_(); }
  // Returns when all transfers of the ticket are complete. Each ticket is finished once, in any order.
  virtual void finish(Ticket ticket) = 0;
  virtual void cancel() = 0;  // after a failure: transfers under way end, and nothing more is written
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) { finish(start(out, in)); }
  // Has `serve` called while finish() waits, and by attend(). It may post and receive messages.
  void serve_while_waiting(std::function<void()> serve) { serve_ = std::move(serve); }
  // Has `inspect` called now and then while anything but wait() waits for other ranks. It may throw, which ends the waiting.
  void inspect_while_waiting(std::function<void()> inspect) { inspect_ = std::move(inspect); }

  // Signs of life, to be asked for now and then. The first is another number than before if that rank's engine has shown
  // life since; it may take the question to have it show some. The second, if bytes have come from others or gone to them.
  virtual uint64_t sign_of_life(int rank) = 0;
  virtual uint64_t moved() = 0;
  // Whether it has said that it sends nothing more. Where ranks cannot say so, they do not leave before others.
  virtual bool has_left(int) const { return false; }
  // In a forked child: lets go of what would keep others from noticing that the parent has ended.
  virtual void leave_to_parent() {}
  virtual std::string describe(int rank) const { return "rank " + std::to_string(rank); }  // for errors

  // Whether data may go over several connections to each rank; then it goes over so many from now on.
  virtual bool has_connections() const { return false; }
  virtual void use_connections(int) {}

  const LinkCosts& links() const { return links_; }  // the same on all ranks
  void know_links(const LinkCosts& links) { links_ = links; }
  int rank() const { return topology().rank; }
  int size() const { return topology().size; }

 protected:
  std::function<void()> serve_ = [] {}, inspect_ = [] {};

 private:
  std::unique_ptr<Window> host_window_;
  LinkCosts links_;
};

}  // namespace hvd
