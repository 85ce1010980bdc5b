// The transport of bytes between ranks. One engine thread owns it; only wake() is thread-safe.
//
// There are two independent kinds of traffic:
//   messages   small, for negotiation: post() never waits for the receiver, and messages of a sender arrive in order
//   bulk data  start() and finish(): transfers that continue while this rank works; from one rank to another they arrive in
//              the order in which both have started them
// Ranks that share memory also have a Window, in which collectives read each other's data directly.
//
// Failures throw InternalError. After a failure only cancel(), abandon() and destruction are allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/time_limits.h"
#include "transport/topology.h"
#include "transport/transfer.h"
#include "transport/window.h"

namespace hvd {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  virtual const Topology& topology() const = 0;
  virtual Window* window() { return nullptr; }  // of all ranks, by rank; null if they share no memory
  // The window of the ranks of this host, by local rank. Either all ranks of the job have one, or none.
  Window* host_window() { return host_window_.get(); }
  void add_host_window(std::unique_ptr<Window> window) { host_window_ = std::move(window); }

  virtual void post(int to, std::span<const std::byte> message) = 0;
  virtual std::optional<Message> receive() = 0;
  // Returns when all posted messages have left. Call it before bulk data that waits for the receiver.
  virtual void flush() = 0;
  // Sleeps until a message may have arrived, wake() was called, or the timeout has passed. With `eager`, because a caller
  // waits, it stays awake for a while or polls at short intervals.
  virtual void wait(std::chrono::microseconds timeout, bool eager) = 0;
  virtual void wake() = 0;

  // Tells the other ranks that this rank cannot continue: their waits for it throw InternalError. `silent` is a rank that this
  // one gave up because it was silent; their errors name it. By default it is the rank that another rank gave up, if any.
  virtual void abandon(int silent = kNoRank) = 0;

  // Starts transfers. For one direction between two ranks, both must start them in the same order with the same byte counts.
  // Until finish() or cancel() the caller must not change or free the memory; `keep_alive` may own it.
  virtual Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                       const std::shared_ptr<void>& keep_alive = {}) = 0;
  // Moves what can be moved without waiting. Call it between two pieces of work.
  virtual void progress() = 0;
  // Like progress(), and also serves other ranks. For a rank that waits for something else, such as a GPU.
  void attend() { progress(), serve_(); }
  // Returns when all transfers of the ticket are complete. Finish each ticket once, in any order.
  virtual void finish(Ticket ticket) = 0;
  virtual void cancel() = 0;  // after a failure: ends transfers under way; nothing more is written
  virtual void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) { finish(start(out, in)); }
  // finish(), while it waits, and attend() call `serve`. It may post and receive messages.
  void serve_while_waiting(std::function<void()> serve) { serve_ = std::move(serve); }
  // `inspect` is called now and then while any call except wait() waits for other ranks. It may throw, which ends the wait.
  void inspect_while_waiting(std::function<void()> inspect) { inspect_ = std::move(inspect); }

  // Signs of life. sign_of_life() changes when the rank's engine has been alive since the last call; the call itself may
  // request a sign. moved() changes when bytes have been received or sent.
  virtual uint64_t sign_of_life(int rank) = 0;
  uint64_t moved() {
    uint64_t count = transferred();
    for (const Window* each : {window(), host_window()}) count += each != nullptr ? each->counted() : 0;
    return count;
  }
  // Whether the rank has said that it sends nothing more. Ranks of transports without this do not leave before the others.
  virtual bool has_left(int) const { return false; }
  // In a forked child: closes what would keep other ranks from noticing the parent's end.
  virtual void leave_to_parent() {}
  virtual std::string describe(int rank) const { return "rank " + std::to_string(rank); }  // for errors

  // Whether data can use several connections to each rank, and how many it uses from now on.
  virtual bool has_connections() const { return false; }
  virtual void use_connections(int) {}

  const LinkCosts& links() const { return links_; }  // the same on all ranks
  void know_links(const LinkCosts& links) { links_ = links; }
  int rank() const { return topology().rank; }
  int size() const { return topology().size; }

 protected:
  virtual uint64_t transferred() = 0;  // changes when messages or bulk data have moved

  void inspect_now_and_then() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_inspection_ < time_limits::kBetweenInspections) return;
    last_inspection_ = now;
    inspect_();
  }

  std::function<void()> serve_ = [] {}, inspect_ = [] {};

 private:
  std::chrono::steady_clock::time_point last_inspection_{};
  std::unique_ptr<Window> host_window_;
  LinkCosts links_;
};

}  // namespace hvd
