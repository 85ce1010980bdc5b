#include "transport/tcp/tcp_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/time_limits.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/socket.h"
#include "transport/transfer.h"

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenLooks{100};  // at the clock, for heartbeats, deadlines and attempts
constexpr size_t kMostStrangers = 64;       // per rank: connections that have not proved yet that they know the secret
constexpr size_t kPiece = size_t{1} << 20;  // bytes of a transfer that one lane takes at a time
constexpr size_t kMostLanes = 16;           // the most that HOROVOD_TCP_CONNECTIONS may request, now or later
constexpr size_t kPiecesQueued = 2;         // per lane, so that one is ready when the other has left

class TcpTransport final : public Transport, private ConnectionOwner {
 public:
  TcpTransport(const Topology& topology, std::vector<Socket> listeners, std::vector<TcpPeer> peers, const Secret& secret,
               const TcpOptions& options, const Log& log)
      : topology_(topology),
        listeners_(std::move(listeners)),
        terms_{secret, options.with_checksums},
        options_(options),
        lanes_(options.lanes),
        log_(log),
        patience_(topology.local_size > static_cast<int>(std::thread::hardware_concurrency()) ? microseconds(0)
                                                                                              : microseconds(50)) {
    for (TcpPeer& peer : peers) peers_.push_back({std::move(peer), std::vector<Connection*>(kMostLanes + 1)});
    for (Socket& listener : listeners_) poller_.watch(listener.descriptor(), &listener);
    const auto now = Clock::now();
    for (Peer& peer : peers_) peer.heard = now;
    last_look_ = last_beat_ = now;
    if (rank() != 0) connection_to(0, 0);
    const auto deadline = now + 2 * time_limits::kHandshake;
    while (!absent().empty()) {
      pump(kBetweenLooks);
      if (Clock::now() > deadline) refuse_absence();
    }
    has_begun_ = true;
  }

  ~TcpTransport() override {
    if (!unfinished_.empty()) cancel();  // their memory may be gone already
    if (!has_failed_ && !is_cancelled_) {
      send_goodbye();
    } else {
      tell_all();
    }
  }

  const char* name() const override { return "tcp"; }
  const Topology& topology() const override { return topology_; }

  void post(int to, std::span<const std::byte> message) override {
    if (to == rank()) {
      arrived_.push_back({to, {message.begin(), message.end()}});
      return;
    }
    if (peer_of(to).has_left) return;  // a rank that has left waits for nothing
    Connection& connection = connection_to(to, 0);
    connection.send(FrameKind::kMessage, {message.begin(), message.end()});
    push(connection);
  }

  std::optional<Message> receive() override {
    poller_.clear_wake();
    if (arrived_.empty()) pump(microseconds(0));
    return take_first(arrived_);
  }

  void flush() override {
    const auto is_waiting = [this] {
      return std::any_of(connections_.begin(), connections_.end(),
                         [](const auto& one) { return one->lane() == 0 && one->queued() != 0 && one->is_trusted(); });
    };
    wait_until([&] { return !is_waiting(); });
  }

  void wait(microseconds timeout, bool eager) override {
    if (!arrived_.empty()) return;
    const auto until = Clock::now() + (eager ? std::min(patience_, timeout) : microseconds(0));
    for (;;) {
      const bool progressed = pump(microseconds(0));
      if (!arrived_.empty()) return;
      if (progressed) continue;
      if (Clock::now() >= until) break;
      std::this_thread::yield();
    }
    pump(std::min<microseconds>(timeout, time_limits::kRankBeat));
  }

  void wake() override { poller_.wake(); }

  void abandon(int silent) override {
    if (silent != kNoRank && !has_failed_) lost_rank_ = silent;
    tell_all();
  }

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) override {
    const Ticket ticket = ++last_ticket_;
    for (const Incoming& in : incoming) {
      if (in.bytes == 0) continue;
      unfinished_[ticket] += 1;
      Peer& peer = peer_of(in.from);
      peer.receiving.emplace(peer.next_in++, Receiving{ticket, static_cast<std::byte*>(in.data), in.bytes});
      for (Connection* lane : peer.stalled) lane->stand_up();
      peer.stalled.clear();
    }
    for (const Outgoing& out : outgoing) {
      if (out.bytes == 0) continue;
      unfinished_[ticket] += 1;
      Peer& peer = peer_of(out.to);
      peer.sending.push_back({ticket, static_cast<const std::byte*>(out.data), out.bytes, peer.next_out++});
      if (out.to != rank()) feed(out.to);
    }
    copy_own();
    pump(microseconds(0));
    return ticket;
  }

  void progress() override {
    pump(microseconds(0));
    inspect_now_and_then();
  }

  void finish(Ticket ticket) override {
    wait_until([&] {
      if (unfinished_.contains(ticket)) serve_();
      return !unfinished_.contains(ticket);
    });
  }

  // Messages are still sent: they tell the reason.
  void cancel() override {
    is_cancelled_ = true;
    for (Peer& peer : peers_) {
      peer.sending.clear();
      peer.receiving.clear();
    }
    for (const auto& connection : connections_) {
      if (connection->lane() != 0) connection->stop();
    }
    unfinished_.clear();
  }

  uint64_t sign_of_life(int from) override {
    try {
      if (from != rank() && !peer_of(from).has_left) connection_to(from, 0);
    } catch (const InternalError& error) {  // a failed question must not end the job
      HVD_LOG(log_, kDebug, "cannot ask " << describe(from) << " whether it lives: " << error.what());
    }
    return peer_of(from).frames;
  }

  bool has_left(int r) const override { return peers_[static_cast<size_t>(r)].has_left; }

  void leave_to_parent() override {
    // Nothing is destroyed, because another thread may have been changing it during the fork.
    for (const auto& connection : connections_) close(connection->socket().descriptor());
    for (const Socket& listener : listeners_) close(listener.descriptor());
  }

  bool has_connections() const override { return true; }
  void use_connections(int count) override { lanes_ = count; }
  std::string describe(int r) const override {
    const std::string& name = peers_[static_cast<size_t>(r)].known.name;
    return Transport::describe(r) + (name.empty() ? "" : " (" + name + ")");
  }

 private:
  struct Sending {
    Ticket ticket;
    const std::byte* data;
    size_t bytes;
    uint64_t number;
    size_t given = 0;  // bytes handed to lanes
  };
  struct Receiving {
    Ticket ticket;
    std::byte* data;
    size_t bytes;
    size_t arrived = 0;
  };
  struct Peer {
    TcpPeer known;
    std::vector<Connection*> connections;  // by lane, for sending; null: not needed so far
    std::deque<Sending> sending{};
    std::map<uint64_t, Receiving> receiving{};  // by number of the transfer
    std::vector<Connection*> stalled{};
    uint64_t next_out = 0, next_in = 0, frames = 0;
    bool has_left = false;
    Clock::time_point heard{};
  };

  uint64_t transferred() override { return bytes_moved_; }
  size_t lanes() const { return static_cast<size_t>(lanes_); }
  Peer& peer_of(int r) { return peers_[static_cast<size_t>(r)]; }

  [[noreturn]] void lose(int r, const std::string& why) {
    lost_rank_ = r;
    lost_ = describe(r) + ": " + why;
    tell_all();
    throw InternalError(Said::connection_lost,
                        {.ranks = {r}, .others = {{"rank", rank()}, {"who", describe(r)}, {"why", why}}});
  }

  // Tells all ranks, once, that this rank cannot continue, and which rank it has lost. Does so before its caller knows, because
  // this process may end then.
  void tell_all() {
    if (std::exchange(has_failed_, true)) return;
    const int32_t lost = lost_rank_;
    std::vector<std::byte> payload(sizeof lost + lost_.size());
    std::memcpy(payload.data(), &lost, sizeof lost);
    std::memcpy(payload.data() + sizeof lost, lost_.data(), lost_.size());
    for (Peer& peer : peers_) {
      Connection* control = peer.connections[0];
      if (control == nullptr || !control->is_ready() || !control->error().empty()) continue;
      control->send(FrameKind::kAbandon, payload);
      control->can_be_written();
      control->write(*this);
    }
  }

  // ---- connections ----

  Connection& connection_to(int r, size_t lane) {
    Connection*& connection = peer_of(r).connections[lane];
    if (connection == nullptr) {
      const Introduction who{static_cast<uint32_t>(rank()), static_cast<uint32_t>(r), static_cast<uint32_t>(lane),
                             static_cast<uint32_t>(size())};
      connections_.push_back(std::make_unique<Connection>(peer_of(r).known.endpoints, who, terms_, Clock::now()));
      connection = connections_.back().get();
      if (connection->socket()) poller_.watch(connection->socket().descriptor(), connection);
    }
    return *connection;
  }

  // Accepts a limited number, so that connections that are refused make room first.
  void accept_some(Socket& listener) {
    std::string why;
    for (size_t count = 0; count < kMostStrangers; ++count) {
      Socket accepted = accept_next(listener, &why);
      if (!why.empty()) refused("the system accepts no connection: " + why);
      must_accept_ |= !why.empty();
      if (!accepted) return;
      make_room_for_a_stranger();
      const Introduction self{static_cast<uint32_t>(rank()), static_cast<uint32_t>(rank()), 0, static_cast<uint32_t>(size())};
      connections_.push_back(std::make_unique<Connection>(std::move(accepted), self, terms_, Clock::now()));
      poller_.watch(connections_.back()->socket().descriptor(), connections_.back().get());
    }
    must_accept_ = true;
  }

  // Refuses the oldest unproven connection if there are too many, so that strangers do not keep ranks out; a refused rank dials
  // again.
  void make_room_for_a_stranger() {
    size_t strangers = 0;
    Connection* oldest = nullptr;
    for (const auto& one : connections_) {
      if (one->is_trusted() || !one->error().empty()) continue;
      strangers += 1;
      if (oldest == nullptr) oldest = one.get();
    }
    if (strangers >= std::max(kMostStrangers, 2 * (lanes() + 1) * peers_.size()))
      oldest->refuse("too many at once that say nothing");
  }

  void refused(const std::string& why) {
    refused_ += 1;
    if ((refused_ & (refused_ - 1)) != 0) return;  // log at 1, 2, 4, 8, ...
    HVD_LOG(log_, kWarning,
            "connections from outside of the job were refused, " << refused_ << " so far; the last one: " << why);
  }

  // Returns true if the handshake has advanced.
  bool shake_hands(Connection& connection) {
    bool any = false;
    while (!connection.is_ready() && connection.error().empty()) {
      const int before = connection.socket().descriptor();
      if (!connection.shake_hands()) break;
      any = true;
      if (!connection.socket()) break;  // the next look at the clock starts the next attempt
      if (before < 0) poller_.watch(connection.socket().descriptor(), &connection);
    }
    if (connection.is_ready()) admit(connection);
    return any;
  }

  void admit(Connection& connection) {
    // Data may wait as long as its receiver does; only lane 0 tells whether the receiver is alive.
    make_ready(connection.socket(), connection.lane() == 0 ? options_.timeout_seconds : 0);
    Peer& peer = peer_of(connection.peer());
    peer.heard = Clock::now();
    if (!connection.is_accepted()) return;
    if (connection.lane() > kMostLanes) {
      throw InternalError(Said::lane_wrong, {.ranks = {connection.peer()}, .others = {{"who", describe(connection.peer())}}});
    }
    Connection*& way = peer.connections[connection.lane()];
    if (way == nullptr) {
      way = &connection;
      if (connection.lane() != 0) feed(connection.peer());
    }
  }

  // ---- sending ----

  void push(Connection& connection) {
    if (connection.is_ready()) bytes_moved_ += connection.write(*this);
  }

  // Gives each lane enough pieces to keep it busy.
  void feed(int to) {
    Peer& peer = peer_of(to);
    for (size_t lane = 1; lane <= lanes() && !peer.sending.empty(); ++lane) {
      Connection& connection = connection_to(to, lane);
      while (!peer.sending.empty() && connection.queued() < kPiecesQueued) {
        Sending& first = peer.sending.front();
        const size_t bytes = std::min(kPiece, first.bytes - first.given);
        const FrameHeader header{FrameKind::kBulk, 0, bytes, first.number, first.given};
        pieces_[first.ticket] += 1;
        connection.send(header, first.data + first.given, first.ticket);
        first.given += bytes;
        if (first.given != first.bytes) continue;
        finish_one(first.ticket);
        peer.sending.pop_front();
      }
      push(connection);
    }
  }

  // The transfer is handed over to lanes; its ticket stays unfinished until all pieces have left.
  void finish_one(Ticket ticket) {
    if (--unfinished_[ticket] == 0 && !pieces_.contains(ticket)) unfinished_.erase(ticket);
  }

  void on_sent(Ticket ticket) override {
    if (--pieces_[ticket] == 0) pieces_.erase(ticket);
    const auto left = unfinished_.find(ticket);
    if (left != unfinished_.end() && left->second == 0 && !pieces_.contains(ticket)) unfinished_.erase(left);
  }

  // Completes transfers of this rank to itself.
  void copy_own() {
    Peer& own = peer_of(rank());
    while (!own.sending.empty() && !own.receiving.empty()) {
      const Sending out = own.sending.front();
      const Receiving in = own.receiving.begin()->second;
      if (out.bytes != in.bytes) throw InternalError(Said::transfer_to_self_differs);
      std::memcpy(in.data, out.data, out.bytes);
      own.sending.pop_front();
      own.receiving.erase(own.receiving.begin());
      finish_one(out.ticket);
      finish_one(in.ticket);
    }
  }

  // ---- receiving ----

  std::byte* place_for(const Connection& from, const FrameHeader& header) override {
    Peer& peer = peer_of(from.peer());
    const auto position = peer.receiving.find(header.transfer);
    if (position == peer.receiving.end()) {
      if (header.transfer < peer.next_in) {
        throw InternalError(Said::transfer_too_long, {.ranks = {from.peer()}, .others = {{"who", describe(from.peer())}}});
      }
      peer.stalled.push_back(const_cast<Connection*>(&from));
      return nullptr;
    }
    const Receiving& transfer = position->second;
    if (header.offset > transfer.bytes || header.bytes > transfer.bytes - header.offset) {
      throw InternalError(
          Said::transfer_of_other_size,
          {.ranks = {from.peer()},
           .others = {{"who", describe(from.peer())}, {"bytes", header.offset + header.bytes}, {"expected", transfer.bytes}}});
    }
    return transfer.data + header.offset;
  }

  void on_bulk(const Connection& from, const FrameHeader& header) override {
    Peer& peer = peer_of(from.peer());
    const auto position = peer.receiving.find(header.transfer);
    Receiving& transfer = position->second;
    transfer.arrived += header.bytes;
    if (transfer.arrived < transfer.bytes) return;
    const Ticket ticket = transfer.ticket;
    peer.receiving.erase(position);
    finish_one(ticket);
  }

  void on_frame(Connection& from, FrameKind kind, std::vector<std::byte> payload) override {
    Peer& peer = peer_of(from.peer());
    if (kind == FrameKind::kAbandon) on_abandonment(from.peer(), payload);
    if (kind == FrameKind::kGoodbye) peer.has_left = true;
    if (kind == FrameKind::kMessage) arrived_.push_back({from.peer(), std::move(payload)});
  }

  [[noreturn]] void on_abandonment(int by, const std::vector<std::byte>& payload) {
    int32_t lost = kNoRank;
    std::string why;
    if (payload.size() >= sizeof lost) {
      std::memcpy(&lost, payload.data(), sizeof lost);
      why.assign(reinterpret_cast<const char*>(payload.data()) + sizeof lost, payload.size() - sizeof lost);
    }
    lost_rank_ = lost == kNoRank && why.empty() ? by : lost;
    lost_ = !why.empty() || lost != kNoRank ? why : describe(by) + ", which could not go on; its own error says why";
    tell_all();
    if (why.empty()) throw InternalError(abandonment(rank(), by, lost));
    if (lost == rank()) {
      throw InternalError(Said::given_up_because, {.ranks = {rank()}, .others = {{"by", by}, {"why", why}}});
    }
    throw InternalError(Said::lost_says_other, {.ranks = {lost}, .others = {{"rank", rank()}, {"who", why}, {"by", by}}});
  }

  // ---- progress ----

  // Waits for an event for at most `timeout`, and moves what can be moved. Returns true if anything moved.
  bool pump(microseconds timeout) {
    for (const Poller::Event& event : poller_.wait(timeout)) {
      const auto listener =
          std::find_if(listeners_.begin(), listeners_.end(), [&](const Socket& one) { return &one == event.owner; });
      if (listener != listeners_.end()) {
        accept_some(*listener);
        continue;
      }
      auto* connection = static_cast<Connection*>(event.owner);
      if (event.can_be_read) connection->can_be_read(event.has_closed);
      if (event.can_be_written) connection->can_be_written();
    }
    bool progressed = false;
    if (std::exchange(must_accept_, false)) {
      for (Socket& listener : listeners_) accept_some(listener);
    }
    for (const auto& connection : connections_) progressed |= turn(*connection);  // read from all before any is dropped
    for (auto position = connections_.begin(); position != connections_.end();) {
      Connection& connection = **position;
      const bool is_done = is_done_with(connection);
      if (is_done && connection.socket()) poller_.forget(connection.socket().descriptor());  // a forked child may have a copy
      position = is_done ? connections_.erase(position) : std::next(position);
    }
    look_at_the_clock();
    return progressed;
  }

  bool turn(Connection& connection) {
    const bool can_go_on = connection.is_ready() || (connection.socket() && connection.error().empty());
    if (!can_go_on || (!connection.is_ready() && !shake_hands(connection))) return false;
    if (!connection.is_ready()) return true;
    Peer& peer = peer_of(connection.peer());
    const uint64_t before = bytes_moved_;
    if (connection.lane() != 0 && !peer.sending.empty()) feed(connection.peer());
    push(connection);
    if (const size_t received = connection.read(*this); received != 0) {
      bytes_moved_ += received;
      peer.frames += 1;
      peer.heard = Clock::now();
    }
    return bytes_moved_ != before;
  }

  // Whether to forget the connection. Throws InternalError if its end means that a rank is lost.
  bool is_done_with(Connection& connection) {
    const bool has_ended = connection.is_over() || !connection.error().empty();
    if (!has_ended) return false;
    if (!connection.is_trusted()) {
      refused(connection.error());
      return true;
    }
    Peer& peer = peer_of(connection.peer());
    if (!peer.has_left) {
      lose(connection.peer(), connection.error().empty() ? "it has closed its connection, so its process has ended"
                                                         : "its connection broke: " + connection.error());
    }
    if (connection.has_transfers()) lose(connection.peer(), "it has left the job");
    forget_ways_of(connection);
    return true;
  }

  void forget_ways_of(const Connection& connection) {
    Peer& peer = peer_of(connection.peer());
    std::erase(peer.stalled, &connection);
    for (Connection*& way : peer.connections) {
      if (way == &connection) way = nullptr;
    }
  }

  void look_at_the_clock() {
    const auto now = Clock::now();
    if (now - last_look_ < kBetweenLooks) return;
    const bool was_away = now - last_look_ > 4 * time_limits::kRankBeat;  // data that arrived meanwhile has not been read yet
    last_look_ = now;
    const bool beats = now - last_beat_ >= time_limits::kRankBeat;
    if (beats) last_beat_ = now;
    for (auto position = connections_.begin(); position != connections_.end();) {
      Connection& connection = **position++;
      if (!connection.is_ready()) {
        if (was_away) connection.begin_again(now);
        check_handshake(connection, now);
      } else if (beats && connection.lane() == 0 && connection.queued() == 0 && !peer_of(connection.peer()).has_left) {
        connection.send(FrameKind::kHeartbeat, {});
        push(connection);
      }
    }
    for (int r = 0; r < size(); ++r) {
      if (was_away) peer_of(r).heard = now;
      check_presence(r, now);
    }
  }

  void check_handshake(Connection& connection, Clock::time_point now) {
    if (!connection.is_trusted()) {
      if (now - connection.begun() >= time_limits::kHandshake) connection.refuse("it said nothing for too long");
      return;
    }
    if (peer_of(connection.peer()).has_left) return connection.refuse("it has left");
    connection.leave_slow_attempt(now, time_limits::kHandshake);
    if (!connection.socket()) shake_hands(connection);
    const auto limit = std::max<std::chrono::duration<double>>(time_limits::kHandshake,
                                                               std::chrono::duration<double>(options_.timeout_seconds));
    if (now - connection.begun() < limit || (options_.timeout_seconds <= 0 && has_begun_)) return;
    lose(connection.peer(), "it cannot be reached (" + connection.last_attempt() +
                                "); does a firewall stand between the hosts, or HOROVOD_TCP_INTERFACES name a wrong network?");
  }

  void check_presence(int r, Clock::time_point now) {
    const Peer& peer = peer_of(r);
    if (peer.has_left && !(peer.receiving.empty() && peer.sending.empty())) {
      const auto is_of_peer = [r](const auto& one) { return one->peer() == r; };
      if (std::none_of(connections_.begin(), connections_.end(), is_of_peer)) lose(r, "it has left the job");
    }
    const Connection* control = peer.connections[0];
    if (r == rank() || peer.has_left || control == nullptr || !control->is_ready() || options_.timeout_seconds <= 0) return;
    if (now - peer.heard < std::chrono::duration<double>(options_.timeout_seconds)) return;
    lose(r, "nothing was heard of it for " + std::to_string(static_cast<int>(options_.timeout_seconds)) +
                " s. Its process was stopped, or its host or the network to it is lost");
  }

  // Sleeps only if the last pump() moved nothing: the poller does not report again what a socket could already do.
  template <typename Condition>
  void wait_until(const Condition& is_so) {
    auto patient_until = Clock::now() + patience_;
    uint64_t moved = bytes_moved_ + 1;
    while (!is_so()) {
      poller_.clear_wake();  // clears wake-ups meant for wait(); its callers check before they sleep
      const auto now = Clock::now();
      const bool has_moved = moved != bytes_moved_;
      moved = bytes_moved_;
      if (has_moved) patient_until = now + patience_;
      const bool may_sleep = !has_moved && now >= patient_until;
      if (pump(may_sleep ? microseconds(kBetweenLooks) : microseconds(0))) continue;
      inspect_now_and_then();
      if (!may_sleep) std::this_thread::yield();
    }
  }

  void send_goodbye() {
    try {
      for (auto& connection : connections_) {
        if (!connection->is_ready()) continue;
        connection->send(FrameKind::kGoodbye, {});
        peer_of(connection->peer()).has_left = true;  // later events of this rank no longer matter
      }
      const auto deadline = Clock::now() + time_limits::kFarewell;
      const auto has_words = [](const auto& one) { return one->is_ready() && one->queued() != 0; };
      while (std::any_of(connections_.begin(), connections_.end(), has_words) && Clock::now() < deadline)
        pump(milliseconds(10));
      pump(microseconds(0));  // with unread data the kernel would reset the connection and drop the goodbye
    } catch (const Error&) {
      return;  // another rank has left first
    }
  }

  // The ranks to which this rank must be connected at the start, but is not.
  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int r = 0; r < topology_.size; ++r) {
      const bool is_needed = r != topology_.rank && (r == 0 || topology_.rank == 0);
      const Connection* control = peers_[static_cast<size_t>(r)].connections[0];
      if (is_needed && (control == nullptr || !control->is_ready())) ranks.push_back(r);
    }
    return ranks;
  }

  [[noreturn]] void refuse_absence() const {
    const std::vector<int> ranks = absent();
    const std::string names = joined(ranks, ", ", [this](int r) { return describe(r); });
    throw InternalError(Said::ranks_absent, {.ranks = ranks, .others = {{"rank", topology_.rank}, {"who", names}}});
  }

  // Constant after construction.
  const Topology topology_;
  std::vector<Socket> listeners_;
  const ConnectionTerms terms_;
  const TcpOptions options_;
  int lanes_;  // for data; may change
  const Log log_;
  const microseconds patience_;

  Poller poller_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::vector<Peer> peers_;
  std::deque<Message> arrived_;
  std::map<Ticket, size_t> unfinished_, pieces_;  // transfers not handed over yet; pieces that have not left
  Ticket last_ticket_ = 0;
  uint64_t bytes_moved_ = 0, refused_ = 0;
  int lost_rank_ = kNoRank;
  std::string lost_;  // the lost rank and the reason
  bool has_failed_ = false, is_cancelled_ = false, must_accept_ = false, has_begun_ = false;
  Clock::time_point last_look_{}, last_beat_{};
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const Topology& topology, std::vector<Socket> listeners,
                                              std::vector<TcpPeer> peers, const Secret& secret, const TcpOptions& options,
                                              const Log& log) {
  try {
    return std::make_unique<TcpTransport>(topology, std::move(listeners), std::move(peers), secret, options, log);
  } catch (const InternalError& error) {
    throw StartupError(error.failure().at_start());
  }
}

}  // namespace hvd
