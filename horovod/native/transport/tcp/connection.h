// One connection to another rank: first the handshake, then frames in both directions. No call blocks. Engine thread only.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/protocol.h"
#include "transport/tcp/socket.h"

namespace hvd {

class Connection {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A connection that this rank has accepted.
  Connection(Socket accepted, const Introduction& self, const ConnectionTerms& terms, TimePoint now);
  // A connection to a rank that listens at these endpoints, which are tried in turn. `who` introduces this rank.
  Connection(const std::vector<std::string>& endpoints, const Introduction& who, const ConnectionTerms& terms, TimePoint now);

  bool is_ready() const { return stage_ == Stage::kReady; }
  bool is_accepted() const { return endpoints_ == nullptr; }
  bool is_trusted() const { return is_ready() || !is_accepted(); }
  // The rank at the other end; kNoRank for an accepted connection before it is ready.
  int peer() const { return peer_; }
  uint32_t lane() const { return who_.lane; }
  TimePoint begun() const { return begun_; }
  const Socket& socket() const { return socket_; }  // none between two attempts
  bool is_over() const { return is_over_; }         // the other side has closed it
  // The reason why the connection or the attempt is lost. A write error counts only when all received data is read.
  const std::string& error() const { return error_.empty() && (!readable_ || stands_still_) ? write_error_ : error_; }
  const std::string& last_attempt() const { return last_attempt_; }  // the reason why it failed

  // Readiness of the socket, from the poller.
  void can_be_read(bool has_closed) { readable_ = true, has_closed_ = has_closed_ || has_closed; }
  void can_be_written() { writable_ = true; }

  void refuse(const std::string& why) { error_ = why; }                     // ends the connection
  void begin_again(TimePoint now) { begun_ = attempted_ = now; }            // restarts the time limits
  void leave_slow_attempt(TimePoint now, std::chrono::milliseconds limit);  // all endpoints are tried within the limit

  // Continues the handshake. Returns true if it has advanced; a new attempt has another descriptor.
  bool shake_hands();

  // Queues a frame with its own bytes, or with bytes of a transfer, which must not change until they have left.
  void send(FrameKind kind, std::vector<std::byte> payload);
  void send(FrameHeader header, const std::byte* data, Ticket ticket);
  size_t queued() const { return outgoing_.size(); }
  bool has_transfers() const;  // whether pieces of transfers have not left

  // Move what can be moved, and return the number of bytes.
  size_t write(ConnectionOwner& owner);
  size_t read(ConnectionOwner& owner);
  void stand_up() { stands_still_ = is_stopped_; }
  // Ends all use of transfers' memory, also in the middle of a frame.
  void stop();

 private:
  enum class Stage { kConnecting, kAwaitsChallenge, kAwaitsAnswer, kAwaitsHello, kReady };
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> own;
    const std::byte* data;
    Ticket ticket;
    size_t bytes() const { return sizeof header + header.bytes; }
  };

  void attempt();
  bool end_connecting();
  bool receive_challenge();
  bool receive_answer();
  bool receive_hello();
  bool give_up(const std::string& why);
  bool can_read_on_after(const Moved& moved) const;
  bool read_exactly(std::byte* into, size_t bytes);
  bool send_handshake(std::span<const std::byte> bytes);
  uint32_t checksum_of(FrameKind kind, const std::byte* data, uint64_t bytes) const;
  size_t fill(std::byte* into, size_t bytes);
  bool begin_frame(ConnectionOwner& owner);
  void end_frame(ConnectionOwner& owner);
  Span lacking();
  size_t receive(const Span& known);
  size_t buffered() const { return buffer_end_ - buffer_begin_; }

  static constexpr size_t kBuffer = size_t{16} << 10;

  const std::vector<std::string>* endpoints_ = nullptr;
  const ConnectionTerms& terms_;
  Introduction who_;
  int peer_ = kNoRank;
  TimePoint begun_, attempted_;
  Socket socket_;
  Stage stage_;
  std::string error_, write_error_, last_attempt_;
  size_t attempts_ = 0;
  bool readable_ = false, writable_ = false, has_closed_ = false, is_over_ = false, stands_still_ = false, is_stopped_ = false;

  // The handshake.
  Nonce nonce_{}, challenge_{};
  Hello hello_{};
  std::vector<std::byte> handshake_received_;

  std::deque<Frame> outgoing_;
  size_t outgoing_done_ = 0;  // bytes of the first frame that have left

  // Incoming data: the current frame, and bytes that were read beyond it.
  bool in_frame_ = false;
  FrameHeader header_;
  std::byte* place_ = nullptr;
  std::vector<std::byte> payload_;
  uint64_t arrived_ = 0;  // bytes of the frame
  std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(kBuffer);
  size_t buffer_begin_ = 0, buffer_end_ = 0;
};

}  // namespace hvd
