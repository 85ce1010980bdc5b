// TCP sockets that never block, over IPv4 and IPv6.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hvd {

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// Ports to choose from; both 0: whichever is free.
struct PortRange {
  int first = 0, last = 0;
};

// `address` is numeric: "10.0.0.1", "fd00::1", "fe80::1%eth0". Throws StartupError.
Socket listen_at(const std::string& address, PortRange ports);

// "10.0.0.1:4000", "[fd00::1]:4000": where a socket listens.
std::string endpoint_of(const Socket& listener);

// Begins to connect to an endpoint; none if that cannot even begin, and `why`. Throws InternalError where descriptors have run
// out.
Socket dial(const std::string& endpoint, std::string* why);

// What became of it, once the socket can be written to: "" or why there is no connection.
std::string outcome_of(const Socket& dialled);

// The next that wants to talk to us, or none. `why` says so where the system has no room for it.
Socket accept_next(const Socket& listener, std::string* why);

// Small messages leave at once, and the system gives up a peer that acknowledges nothing for `limit_seconds`; 0: never.
void make_ready(const Socket& connection, double limit_seconds);

// What is moved without waiting, and what became of it.
struct Moved {
  size_t bytes = 0;
  bool is_blocked = false;  // no more for now
  bool is_over = false;     // the other side will send nothing more
  std::string error{};      // why the connection is gone, else ""
};
struct Span {
  void* data;
  size_t bytes;
};
Moved send_some(const Socket& socket, std::span<const Span> spans);
Moved receive_some(const Socket& socket, std::span<const Span> spans);

// Sleeps until one of many sockets can be read or written, or another thread wakes it.
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
