// Non-blocking TCP sockets over IPv4 and IPv6. Only Poller::wake() may be called by other threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
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

// Ports to choose from; 0 and 0: any free port.
struct PortRange {
  int first = 0, last = 0;
};

// `address` is numeric: "10.0.0.1", "fd00::1", "fe80::1%eth0". Throws StartupError.
Socket listen_at(const std::string& address, PortRange ports);

// The endpoint on which a socket listens: "10.0.0.1:4000", "[fd00::1]:4000".
std::string endpoint_of(const Socket& listener);

// Starts to connect to an endpoint. Returns no socket and sets `why` if that fails at once. Throws InternalError if the process
// has no descriptors left.
Socket dial(const std::string& endpoint, std::string* why);

// The result of dial(), when the socket is writable: "" or the reason why there is no connection.
std::string outcome_of(const Socket& dialled);

// Accepts the next connection, or returns none. Sets `why` if the system lacks resources.
Socket accept_next(const Socket& listener, std::string* why);

// Disables Nagle's algorithm. The kernel gives up a peer that acknowledges nothing for `limit_seconds`; 0: never.
void make_ready(const Socket& connection, double limit_seconds);

// The result of a non-blocking transfer.
struct Moved {
  size_t bytes = 0;
  bool is_blocked = false;  // no more for now
  bool is_over = false;     // the other side sends nothing more
  std::string error{};      // the reason why the connection is lost, else ""
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
  // Events of the descriptor name `owner`. Its current state is reported at once, then each change once (edge-triggered).
  void watch(int descriptor, void* owner);
  void forget(int descriptor);

  struct Event {
    void* owner;
    bool can_be_read, can_be_written;
    bool has_closed;  // by the other side; earlier data can still be read
  };
  // Waits for at most `timeout`, and returns the events. wake() ends this wait and all later ones until clear_wake().
  const std::vector<Event>& wait(std::chrono::microseconds timeout);
  void wake();  // thread-safe
  void clear_wake();

 private:
  Socket epoll_, doorbell_;
  std::vector<Event> events_;
  std::atomic<bool> is_rung_{false};  // since the last clear_wake()
  bool was_seen_ = false;
};

}  // namespace hvd
