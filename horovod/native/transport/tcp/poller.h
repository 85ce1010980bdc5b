// Sleeps until one of many sockets can be read or written, or another thread wakes it.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "transport/tcp/socket.h"

namespace hvd {

class Poller {
 public:
  Poller();
  // `owner` is what Event says of it. Each change of the descriptor is told once, and what it can do already.
  void watch(int descriptor, void* owner);
  void forget(int descriptor);

  struct Event {
    void* owner;
    bool can_be_read, can_be_written;
    bool has_closed;  // the other side: what it has sent before can be read still
  };
  // What has happened, after at most `timeout`. wake() ends the waiting, and each later one until hear_wake() is called.
  const std::vector<Event>& wait(std::chrono::microseconds timeout);
  void wake();  // on any thread
  void hear_wake();

 private:
  Socket epoll_, doorbell_;
  std::vector<Event> events_;
  std::atomic<bool> is_rung_{false};  // since the last hear_wake()
  bool was_seen_ = false;
};

}  // namespace hvd
