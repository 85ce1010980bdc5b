// The transport of ranks that share memory: processes of one host (an MPI shared window) or threads of one process (`local`).
//
// Each rank owns one segment. Other ranks write only to their own rings in it, and to its doorbell.
//
//   segment := header ring_control[2 * size] message_bytes[size] bulk_bytes[size] window
//
// The first `size` ring controls belong to the message rings, by sender; the others to the bulk rings.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/futex.h"
#include "transport/transfer.h"
#include "transport/transport.h"
#include "transport/window.h"

namespace hvd {

class Ring;

class SharedMemoryTransport final : public Transport {
 public:
  // Bytes of one rank's segment in a job of `size` ranks. Segments must be aligned to 64 bytes.
  static size_t segment_bytes(int size);
  // Initialises a segment. Every rank prepares its own, and all must be prepared before any is used.
  static void prepare(std::byte* segment, int size);

  // `segments`, by rank, must outlive the transport; `keep_alive` may own them. Without `with_window` the window is hidden, so
  // that tests reach the routes of ranks without shared memory.
  SharedMemoryTransport(std::string name, const Topology& topology, std::vector<std::byte*> segments,
                        std::shared_ptr<void> keep_alive, bool with_window = true);
  ~SharedMemoryTransport() override;

  const char* name() const override { return name_.c_str(); }
  const Topology& topology() const override { return topology_; }
  Window* window() override { return window_.get(); }

  void post(int to, std::span<const std::byte> message) override;
  std::optional<Message> receive() override;
  void flush() override;
  void wait(std::chrono::microseconds timeout, bool eager) override;
  void wake() override;
  void abandon(int silent) override;
  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive) override;
  void progress() override;
  void finish(Ticket ticket) override;
  void cancel() override;
  uint64_t sign_of_life(int rank) override;
  uint64_t moved() override;
  std::string describe(int rank) const override;

 private:
  struct Header;
  struct Layout;
  struct Moving;
  struct Peer;

  Header& header(int rank) const;
  bool pump_out(int peer);
  bool pump_in(int peer);
  bool pump_messages();
  bool pump_bulk();
  bool pump_bulk(std::deque<Moving>& queue, Ring& ring, bool out);
  void ring_doorbell(int peer);
  void show_life();
  void look_after_peers(bool is_waiting);
  void throw_if_a_peer_is_lost();

  // Constant after construction.
  const std::string name_;
  const Topology topology_;
  const std::shared_ptr<void> keep_alive_;
  const Patience patience_;
  std::unique_ptr<Window> window_;
  std::vector<Peer> peers_;  // private state: engine thread only

  // Engine thread only.
  std::deque<Message> arrived_;
  Ticket last_ticket_ = 0;
  uint64_t bytes_moved_ = 0;
  int silent_ = kNoRank;                 // the rank that another rank has given up
  std::map<Ticket, size_t> unfinished_;  // the number of transfers left, by ticket
  uint32_t heard_ = 0;
  std::chrono::steady_clock::time_point last_look_{};
};

}  // namespace hvd
