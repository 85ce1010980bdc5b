#include "transport/shared_memory.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "base/time_limits.h"
#include "transport/transfer.h"

namespace hvd {

using std::chrono::microseconds;

namespace {

// A stream of bytes through shared memory, with one writer and one reader; neither blocks. Control block and bytes are in
// shared memory; a Ring is one side's view.
struct RingControl {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
};

class Ring {
 public:
  Ring() = default;
  // `capacity` is a power of two.
  Ring(RingControl* control, std::byte* bytes, size_t capacity) : control_(control), bytes_(bytes), capacity_(capacity) {}

  // Copy as much as possible, and return the number of bytes.
  size_t write(const void* data, size_t bytes) {
    const uint64_t written = control_->written.load(std::memory_order_relaxed);
    const uint64_t read = control_->read.load(std::memory_order_acquire);
    const size_t count = std::min(bytes, capacity_ - static_cast<size_t>(written - read));
    if (count == 0) return 0;
    const size_t start = static_cast<size_t>(written) & (capacity_ - 1);
    const size_t first = std::min(count, capacity_ - start);
    std::memcpy(bytes_ + start, data, first);
    std::memcpy(bytes_, static_cast<const std::byte*>(data) + first, count - first);
    control_->written.store(written + count, std::memory_order_release);
    return count;
  }

  size_t read(void* data, size_t bytes) {
    const uint64_t read = control_->read.load(std::memory_order_relaxed);
    const uint64_t written = control_->written.load(std::memory_order_acquire);
    const size_t count = std::min(bytes, static_cast<size_t>(written - read));
    if (count == 0) return 0;
    const size_t start = static_cast<size_t>(read) & (capacity_ - 1);
    const size_t first = std::min(count, capacity_ - start);
    std::memcpy(data, bytes_ + start, first);
    std::memcpy(static_cast<std::byte*>(data) + first, bytes_, count - first);
    control_->read.store(read + count, std::memory_order_release);
    return count;
  }

  size_t readable() const {
    return static_cast<size_t>(control_->written.load(std::memory_order_acquire) -
                               control_->read.load(std::memory_order_relaxed));
  }

 private:
  RingControl* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
};

constexpr microseconds kSleepBetweenLooks = time_limits::kProcessLook / 4;  // while waiting: short, so that a look is not late

// A pid is meaningless in another pid namespace.
uint64_t own_pid_namespace() {
  struct stat facts{};
  return stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

// Spinning helps while every rank has a core. With more ranks than cores it takes the core that the peer needs.
Patience patience_for(int local_size) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Patience patience;
  if (local_size > cores) patience.spins = 0;
  return patience;
}

class SharedMemoryTransport final : public Transport {
 public:
  // Bytes of one rank's segment in a job of `size` ranks. Segments must be aligned to 64 bytes.
  static size_t segment_bytes(int size) { return Layout(size).total; }

  // Initialises a segment. Every rank prepares its own, and all must be prepared before any is used.
  static void prepare(std::byte* segment, int size) {
    const Layout layout(size);
    auto* header = new (segment) Header();
    auto* controls = reinterpret_cast<RingControl*>(segment + layout.controls);
    for (int i = 0; i < 2 * size; ++i) new (controls + i) RingControl();
    prepare_window(segment + layout.window);
    header->pid_namespace.store(own_pid_namespace(), std::memory_order_relaxed);
    header->pid.store(getpid(), std::memory_order_release);
  }

  // `segments`, by rank, must outlive the transport; `keep_alive` may own them. Without `with_window` the window is hidden, so
  // that tests reach the routes of ranks without shared memory.
  SharedMemoryTransport(std::string name, const Topology& topology, std::vector<std::byte*> segments,
                        std::shared_ptr<void> keep_alive, bool with_window = true)
      : name_(std::move(name)),
        topology_(topology),
        keep_alive_(std::move(keep_alive)),
        patience_(patience_for(topology.local_size)) {
    const Layout layout(topology_.size);
    peers_.resize(segments.size());
    std::vector<std::byte*> window_segments;
    std::byte* mine = segments[static_cast<size_t>(rank())];
    for (int r = 0; r < size(); ++r) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      peer.segment = segments[static_cast<size_t>(r)];
      peer.messages_in = layout.ring(mine, r, false, size());
      peer.bulk_in = layout.ring(mine, r, true, size());
      peer.messages_out = layout.ring(peer.segment, rank(), false, size());
      peer.bulk_out = layout.ring(peer.segment, rank(), true, size());
      const pid_t pid = header(r).pid.load(std::memory_order_acquire);
      const uint64_t space = header(r).pid_namespace.load(std::memory_order_relaxed);
      if (with_window) window_segments.push_back(peer.segment + layout.window);
      peer.pid_is_visible = space != 0 && space == own_pid_namespace() && kill(pid, 0) == 0;
    }
    if (!with_window) return;
    window_ = make_shared_window(rank(), std::move(window_segments), Layout::kAreaBytes,
                                 WindowWait{patience_, kSleepBetweenLooks, [this] { look_after_peers(true); }}, nullptr);
  }

  const char* name() const override { return name_.c_str(); }
  const Topology& topology() const override { return topology_; }
  Window* window() override { return window_.get(); }

  void post(int to, std::span<const std::byte> message) override {
    std::vector<std::byte>& outbox = peers_[static_cast<size_t>(to)].outbox;
    const auto length = static_cast<uint32_t>(message.size());
    const auto* prefix = reinterpret_cast<const std::byte*>(&length);
    outbox.insert(outbox.end(), prefix, prefix + sizeof length);
    outbox.insert(outbox.end(), message.begin(), message.end());
    pump_out(to);
  }

  std::optional<Message> receive() override {
    show_life();
    heard_ = header(rank()).doorbell.count.load(std::memory_order_acquire);
    if (arrived_.empty()) pump_messages();
    return take_first(arrived_);
  }

  void flush() override {
    auto waiting = [this] {
      return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.outbox.empty(); });
    };
    while (waiting()) {
      FutexCounter& doorbell = header(rank()).doorbell;
      const uint32_t seen = doorbell.count.load(std::memory_order_acquire);
      if (pump_messages()) continue;
      look_after_peers(true);
      wait_for_change(doorbell, seen, kSleepBetweenLooks, patience_);
    }
  }

  void wait(microseconds timeout, bool eager) override {
    if (!arrived_.empty()) return;
    FutexCounter& doorbell = header(rank()).doorbell;
    const microseconds slice = std::min<microseconds>(timeout, time_limits::kProcessLook);
    const Patience patience = eager ? patience_ : Patience{0, microseconds(0)};
    if (pump_messages()) return;
    look_after_peers(false);
    wait_for_change(doorbell, heard_, slice, patience);
  }

  void wake() override { ring_doorbell(rank()); }

  void abandon(int silent) override {
    header(rank()).silent.store(silent == kNoRank ? silent_ : silent, std::memory_order_relaxed);
    header(rank()).has_abandoned.store(true, std::memory_order_release);
  }

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) override {
    const Ticket ticket = ++last_ticket_;
    for (const Outgoing& out : outgoing) {
      if (out.bytes == 0) continue;
      auto* data = static_cast<std::byte*>(const_cast<void*>(out.data));  // read only
      peers_[static_cast<size_t>(out.to)].sending.push_back({ticket, data, out.bytes});
      unfinished_[ticket] += 1;
    }
    for (const Incoming& in : incoming) {
      if (in.bytes == 0) continue;
      peers_[static_cast<size_t>(in.from)].receiving.push_back({ticket, static_cast<std::byte*>(in.data), in.bytes});
      unfinished_[ticket] += 1;
    }
    pump_bulk();
    return ticket;
  }

  void progress() override {
    if (!pump_bulk()) look_after_peers(true);
  }

  void finish(Ticket ticket) override {
    FutexCounter& doorbell = header(rank()).doorbell;
    for (;;) {
      const uint32_t seen = doorbell.count.load(std::memory_order_acquire);
      const bool progressed = pump_bulk();
      if (!unfinished_.contains(ticket)) return;
      serve_();
      if (progressed) continue;
      look_after_peers(true);
      wait_for_change(doorbell, seen, kSleepBetweenLooks, patience_);
    }
  }

  // Only this rank's own calls move bytes, so nothing is under way elsewhere.
  void cancel() override {
    for (Peer& peer : peers_) {
      peer.sending.clear();
      peer.receiving.clear();
    }
    unfinished_.clear();
  }

  uint64_t sign_of_life(int r) override { return header(r).signs_of_life.load(std::memory_order_relaxed); }

  std::string describe(int r) const override {
    if (!peers_[static_cast<size_t>(r)].pid_is_visible) return Transport::describe(r);
    return Transport::describe(r) + " (" + process_text(header(r).pid.load(std::memory_order_relaxed)) + ")";
  }

 private:
  struct Moving {
    Ticket ticket;
    std::byte* data;
    size_t bytes;  // left to move
  };

  // This rank's view of another rank: the rings between them, and the queues for these rings.
  struct Peer {
    std::byte* segment = nullptr;
    Ring messages_out, messages_in, bulk_out, bulk_in;
    std::vector<std::byte> outbox;  // posted, but not in the ring yet
    size_t outbox_sent = 0;
    std::vector<std::byte> inbox;  // of the message being received
    uint32_t inbox_wanted = 0;
    std::deque<Moving> sending, receiving;
    bool pid_is_visible = false;  // so that its death can be noticed
  };

  struct Header {
    FutexCounter doorbell;
    std::atomic<int32_t> pid{0};
    std::atomic<uint64_t> pid_namespace{0};
    std::atomic<int32_t> silent{kNoRank};  // the rank that it has given up, if any
    std::atomic<bool> has_abandoned{false};
    // Grows while the rank's engine is alive.
    alignas(64) std::atomic<uint64_t> signs_of_life{0};
  };

  struct Layout {
    explicit Layout(int size) {
      const auto n = static_cast<size_t>(size);
      message_ring = std::clamp(std::bit_floor(kMessageBytes / n), size_t{2048}, size_t{65536});
      bulk_ring = std::clamp(std::bit_floor(kBulkBytes / n), size_t{8192}, size_t{262144});
      controls = (sizeof(Header) + 63) / 64 * 64;
      messages = controls + 2 * n * sizeof(RingControl);
      bulk = messages + n * message_ring;
      window = (bulk + n * bulk_ring + 4095) / 4096 * 4096;
      total = window + window_segment_bytes(kAreaBytes);
    }
    static constexpr size_t kMessageBytes = size_t{1} << 18;
    static constexpr size_t kBulkBytes = size_t{1} << 20;
    static constexpr size_t kAreaBytes = size_t{4} << 20;

    size_t message_ring, bulk_ring;                  // bytes of one ring
    size_t controls, messages, bulk, window, total;  // offsets in a segment, and its length

    Ring ring(std::byte* segment, int sender, bool is_bulk, int size) const {
      auto* control = reinterpret_cast<RingControl*>(segment + controls) + (is_bulk ? size : 0) + sender;
      const size_t length = is_bulk ? bulk_ring : message_ring;
      return {control, segment + (is_bulk ? bulk : messages) + static_cast<size_t>(sender) * length, length};
    }
  };

  uint64_t transferred() override { return bytes_moved_; }

  Header& header(int r) const { return *reinterpret_cast<Header*>(peers_[static_cast<size_t>(r)].segment); }

  bool pump_out(int to) {
    Peer& peer = peers_[static_cast<size_t>(to)];
    if (peer.outbox.empty()) return false;
    const size_t sent = peer.messages_out.write(peer.outbox.data() + peer.outbox_sent, peer.outbox.size() - peer.outbox_sent);
    if (sent == 0) return false;
    peer.outbox_sent += sent;
    if (peer.outbox_sent == peer.outbox.size()) {
      peer.outbox.clear();
      peer.outbox_sent = 0;
    }
    ring_doorbell(to);
    return true;
  }

  bool pump_in(int from) {
    Peer& peer = peers_[static_cast<size_t>(from)];
    bool progressed = false;
    for (;;) {
      if (peer.inbox_wanted == 0) {
        if (peer.messages_in.readable() < sizeof(uint32_t)) break;
        uint32_t length = 0;
        peer.messages_in.read(&length, sizeof length);
        peer.inbox.clear();
        peer.inbox_wanted = length;
        progressed = true;
        if (length == 0) arrived_.push_back({from, {}});
        continue;
      }
      const size_t have = peer.inbox.size();
      const size_t there = std::min<size_t>(peer.messages_in.readable(), peer.inbox_wanted - have);
      if (there == 0) break;
      peer.inbox.resize(have + there);
      peer.messages_in.read(peer.inbox.data() + have, there);
      progressed = true;
      if (peer.inbox.size() == peer.inbox_wanted) {
        arrived_.push_back({from, std::move(peer.inbox)});
        peer.inbox = {};
        peer.inbox_wanted = 0;
      }
    }
    if (progressed) ring_doorbell(from);  // its outbox may wait for room
    return progressed;
  }

  bool pump_messages() {
    bool progressed = false;
    for (int r = 0; r < size(); ++r) {
      progressed |= pump_out(r);
      progressed |= pump_in(r);
    }
    return progressed;
  }

  bool pump_bulk() {
    show_life();
    bool progressed = false;
    for (int r = 0; r < size(); ++r) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      const bool sent = pump_bulk(peer.sending, peer.bulk_out, true);
      const bool received = pump_bulk(peer.receiving, peer.bulk_in, false);
      if (!sent && !received) continue;
      ring_doorbell(r);
      progressed = true;
    }
    return progressed;
  }

  // A queue is a stream of bytes: each transfer begins at the end of the one before.
  bool pump_bulk(std::deque<Moving>& queue, Ring& ring, bool out) {
    bool progressed = false;
    while (!queue.empty()) {
      Moving& first = queue.front();
      const size_t moved = out ? ring.write(first.data, first.bytes) : ring.read(first.data, first.bytes);
      progressed |= moved != 0;
      bytes_moved_ += moved;
      first.data += moved;
      first.bytes -= moved;
      if (first.bytes != 0) break;
      if (--unfinished_[first.ticket] == 0) unfinished_.erase(first.ticket);
      queue.pop_front();
    }
    return progressed;
  }

  void ring_doorbell(int peer) { hvd::advance(header(peer).doorbell); }

  // This rank is the only writer, so a plain load and store suffice.
  void show_life() {
    std::atomic<uint64_t>& signs = header(rank()).signs_of_life;
    signs.store(signs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Callers found nothing to do and are about to wait, so a peer's last messages are not missed. The clock decides when to look,
  // because wake() may cut every wait short.
  void look_after_peers(bool is_waiting) {
    show_life();
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ < time_limits::kProcessLook) return;
    last_look_ = now;
    throw_if_a_peer_is_lost();
    if (is_waiting) inspect_();
  }

  // Blames a rank that ended without abandoning, rather than ranks that abandoned, whatever happened to those later.
  void throw_if_a_peer_is_lost() {
    int abandoned_by = kNoRank;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      if (header(r).has_abandoned.load(std::memory_order_acquire)) {
        abandoned_by = abandoned_by == kNoRank ? r : abandoned_by;
        continue;
      }
      if (!peers_[static_cast<size_t>(r)].pid_is_visible) continue;
      const pid_t pid = header(r).pid.load(std::memory_order_relaxed);
      if (has_ended(pid)) {
        if (pump_messages()) return;  // its last messages may have arrived meanwhile
        throw InternalError(Said::process_ended, {.ranks = {r}, .others = {{"rank", topology_.rank}, {"pid", pid}}});
      }
    }
    if (abandoned_by == kNoRank) return;
    silent_ = header(abandoned_by).silent.load(std::memory_order_relaxed);
    throw InternalError(abandonment(rank(), abandoned_by, silent_));
  }

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

}  // namespace

size_t shared_memory_bytes(int size) { return SharedMemoryTransport::segment_bytes(size); }

void prepare_shared_memory(std::byte* segment, int size) { SharedMemoryTransport::prepare(segment, size); }

std::unique_ptr<Transport> make_shared_memory_transport(std::string name, const Topology& topology,
                                                        std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive,
                                                        bool with_window) {
  return std::make_unique<SharedMemoryTransport>(std::move(name), topology, std::move(segments), std::move(keep_alive),
                                                 with_window);
}

}  // namespace hvd
