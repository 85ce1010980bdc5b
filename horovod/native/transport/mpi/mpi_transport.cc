#include "transport/mpi/mpi_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/futex.h"
#include "base/time_limits.h"
#include "transport/transfer.h"

namespace hvd {
namespace {

using std::chrono::microseconds;

constexpr size_t kLargestTransfer = size_t{1} << 30;  // MPI counts are C ints

constexpr size_t kPiecesUnderWay = 16;  // for each exchange()

// MPI makes progress only inside calls, and polling in a loop would take the training thread's core. So the pauses between
// polls grow up to this.
constexpr microseconds kLongestPause{100};
constexpr int kTestsBeforePausing = 200;
constexpr Patience kSleepAtOnce{0, microseconds(0)};

class Backoff {
 public:
  // Yields at first, then sleeps for growing times; returns true if it slept.
  bool pause() {
    if (++tests_ <= kTestsBeforePausing) {
      std::this_thread::yield();
      return false;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }

 private:
  int tests_ = 0;
  microseconds pause_{5};
};

// Transfers that were started together. After its destructor none of them writes to the caller's memory.
class Transfers {
 public:
  explicit Transfers(std::shared_ptr<void> keep_alive) : keep_alive_(std::move(keep_alive)) {}
  Transfers(const Transfers&) = delete;
  ~Transfers() {
    if (requests_.empty()) return;
    for (size_t i = 0; i < receives_; ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
    // A message that has begun to arrive cannot be cancelled, and the rest does not come if its sender has stopped.
    const auto deadline = std::chrono::steady_clock::now() + time_limits::kFarewell;
    for (size_t i = 0; i < receives_; ++i) {
      int done = requests_[i] == MPI_REQUEST_NULL;
      while (!done && (keep_alive_ == nullptr || std::chrono::steady_clock::now() < deadline)) {
        if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      }
    }
    const bool is_over = std::all_of(requests_.begin(), requests_.end(), [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
    if (!is_over && keep_alive_) new std::shared_ptr<void>(std::move(keep_alive_));  // leaked: MPI may still use it
  }
  // Call receive() before send().
  void receive(void* data, int bytes, int from, int tag, MPI_Comm world) {
    check(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, world, &requests_.emplace_back(MPI_REQUEST_NULL)), "MPI_Irecv");
    receives_ = requests_.size();
  }
  void send(const void* data, int bytes, int to, int tag, MPI_Comm world) {
    check(MPI_Isend(data, bytes, MPI_BYTE, to, tag, world, &requests_.emplace_back(MPI_REQUEST_NULL)), "MPI_Isend");
  }
  bool are_complete() {
    int complete = 0;
    statuses_.resize(requests_.size());
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses_) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "a transfer");
      }
    }
    check(code, "MPI_Testall");
    return complete != 0;
  }
  uint64_t size() const { return requests_.size(); }
  uint64_t complete() const {
    uint64_t count = 0;
    for (const MPI_Request request : requests_) {
      int done = 0;
      check(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
      count += static_cast<uint64_t>(done);
    }
    return count;
  }

 private:
  std::shared_ptr<void> keep_alive_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  size_t receives_ = 0;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm world, const Topology& topology, int generation)
      : world_(world),
        topology_(topology),
        message_tag_(3 * generation),
        bulk_tag_(3 * generation + 1),
        control_tag_(3 * generation + 2),
        arrived_(static_cast<size_t>(topology.size), 0),
        is_asked_(static_cast<size_t>(topology.size), false) {}
  ~MpiTransport() override {
    for (std::deque<Posted>* posted : {&posted_, &controls_}) {
      forget_sent(*posted);
      // A stopped rank may never receive the rest. MPI reads the memory until it is finalised, so it is leaked.
      if (!posted->empty()) new std::deque<Posted>(std::move(*posted));
    }
  }

  const char* name() const override { return "mpi"; }
  const Topology& topology() const override { return topology_; }

  void post(int to, std::span<const std::byte> message) override { post(to, message, message_tag_, posted_); }

  void abandon(int silent) override {
    for (int to = 0; to < size(); ++to) {
      if (to != rank()) send_control(to, {ControlKind::kAbandon, silent == kNoRank ? silent_ : silent});
    }
  }

  std::optional<Message> receive() override {
    heard_ = doorbell_.count.load(std::memory_order_acquire);
    forget_sent(posted_);
    int found = 0;
    MPI_Message handle;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, message_tag_, world_, &found, &handle, &status), "MPI_Improbe");
    if (!found) return std::nullopt;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Message message{status.MPI_SOURCE, std::vector<std::byte>(static_cast<size_t>(bytes))};
    check(MPI_Mrecv(message.bytes.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
    arrived_[static_cast<size_t>(message.from)] += 1;
    return message;
  }

  void flush() override {
    Backoff backoff;
    for (forget_sent(posted_); !posted_.empty(); forget_sent(posted_)) {
      if (backoff.pause()) progress();
    }
  }

  void wait(microseconds timeout, bool eager) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    // If an answer is due, the first polls come quickly; an idle rank polls once a millisecond.
    microseconds pause = std::min(timeout, eager ? microseconds(10) : microseconds(1000));
    while (std::chrono::steady_clock::now() < deadline) {
      int found = 0;
      check(MPI_Iprobe(MPI_ANY_SOURCE, message_tag_, world_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (found || wait_for_change(doorbell_, heard_, pause, kSleepAtOnce) != heard_) return;
      receive_controls();
      if (eager) pause = std::min(2 * pause, kLongestPause);
    }
  }

  void wake() override { advance(doorbell_); }

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive) override {
    Transfers& transfers = in_flight_.try_emplace(++last_ticket_, keep_alive).first->second;
    for (const Incoming& in : incoming) {
      for (size_t at = 0; at < in.bytes; at += kLargestTransfer) {
        const int count = static_cast<int>(std::min(kLargestTransfer, in.bytes - at));
        transfers.receive(static_cast<std::byte*>(in.data) + at, count, in.from, bulk_tag_, world_);
      }
    }
    for (const Outgoing& out : outgoing) {
      for (size_t at = 0; at < out.bytes; at += kLargestTransfer) {
        const int count = static_cast<int>(std::min(kLargestTransfer, out.bytes - at));
        transfers.send(static_cast<const std::byte*>(out.data) + at, count, out.to, bulk_tag_, world_);
      }
    }
    return last_ticket_;
  }

  // Sends pieces that leave at once, several at a time, so that both directions of every link are busy.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    size_t longest = 0;
    for (const Outgoing& out : outgoing) longest = std::max(longest, out.bytes);
    for (const Incoming& in : incoming) longest = std::max(longest, in.bytes);
    std::deque<Ticket> under_way;
    std::vector<Outgoing> out_pieces;
    std::vector<Incoming> in_pieces;
    for (size_t at = 0; at < longest; at += kPromptBytes) {
      out_pieces.clear();
      in_pieces.clear();
      for (const Outgoing& out : outgoing) {
        if (at >= out.bytes) continue;
        out_pieces.push_back({out.to, static_cast<const std::byte*>(out.data) + at, std::min(kPromptBytes, out.bytes - at)});
      }
      for (const Incoming& in : incoming) {
        if (at >= in.bytes) continue;
        in_pieces.push_back({in.from, static_cast<std::byte*>(in.data) + at, std::min(kPromptBytes, in.bytes - at)});
      }
      under_way.push_back(start(out_pieces, in_pieces, nullptr));
      if (under_way.size() < kPiecesUnderWay) continue;
      finish(under_way.front());
      under_way.pop_front();
    }
    for (const Ticket ticket : under_way) finish(ticket);
  }

  // Any MPI call makes progress; this one is needed anyway.
  void progress() override {
    receive_controls();
    inspect_now_and_then();
  }

  void finish(Ticket ticket) override {
    progress();  // other transfers may wait for this rank, even if these are complete
    const auto position = in_flight_.find(ticket);
    Backoff backoff;
    while (!position->second.are_complete()) {
      serve_();
      if (backoff.pause()) progress();
    }
    finished_ += position->second.size();
    in_flight_.erase(position);
  }

  void cancel() override { in_flight_.clear(); }

  // Counts messages, and the answers to questions, which a rank's engine sends whenever it polls.
  uint64_t sign_of_life(int from) override {
    const auto of = static_cast<size_t>(from);
    if (!is_asked_[of]) send_control(from, {ControlKind::kQuestion, kNoRank});
    is_asked_[of] = true;
    return arrived_[of];
  }

 private:
  uint64_t transferred() override {
    uint64_t complete = finished_;
    for (const auto& [ticket, transfers] : in_flight_) complete += transfers.complete();
    return complete;
  }

  struct Posted {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  // Control messages beside negotiation and data.
  enum class ControlKind : int32_t { kAbandon, kQuestion, kAnswer };
  struct ControlMessage {
    ControlKind kind;
    int32_t silent;  // of kAbandon: the rank that is given up, or kNoRank
  };

  void post(int to, std::span<const std::byte> message, int tag, std::deque<Posted>& queue) {
    Posted& posted = queue.emplace_back();
    posted.bytes.assign(message.begin(), message.end());
    check(MPI_Isend(posted.bytes.data(), static_cast<int>(posted.bytes.size()), MPI_BYTE, to, tag, world_, &posted.request),
          "MPI_Isend");
  }

  void send_control(int to, ControlMessage message) {
    forget_sent(controls_);
    post(to, std::as_bytes(std::span(&message, 1)), control_tag_, controls_);
  }

  void receive_controls() {
    for (;;) {
      int found = 0;
      MPI_Message handle;
      MPI_Status status;
      check(MPI_Improbe(MPI_ANY_SOURCE, control_tag_, world_, &found, &handle, &status), "MPI_Improbe");
      if (!found) break;
      ControlMessage message{};
      check(MPI_Mrecv(&message, sizeof message, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
      on_control(status.MPI_SOURCE, message);
    }
    if (abandonment_.is_any()) throw InternalError(abandonment_);
  }

  void on_control(int from, const ControlMessage& message) {
    const auto of = static_cast<size_t>(from);
    arrived_[of] += 1;
    if (message.kind == ControlKind::kQuestion) send_control(from, {ControlKind::kAnswer, kNoRank});
    if (message.kind == ControlKind::kAnswer) is_asked_[of] = false;
    if (message.kind != ControlKind::kAbandon || abandonment_.is_any()) return;
    silent_ = message.silent;
    abandonment_ = abandonment(rank(), from, silent_);
  }

  // From the front: a receiver that takes nothing also delays freeing later messages to others.
  static void forget_sent(std::deque<Posted>& posted) {
    while (!posted.empty()) {
      int sent = 0;
      check(MPI_Test(&posted.front().request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (!sent) return;
      posted.pop_front();
    }
  }

  const MPI_Comm world_;
  const Topology topology_;
  const int message_tag_, bulk_tag_, control_tag_;
  FutexCounter doorbell_;
  // Engine thread only.
  std::deque<Posted> posted_, controls_;
  std::vector<uint64_t> arrived_;  // messages, by rank
  std::vector<bool> is_asked_;     // by rank: has not answered the last question
  Failure abandonment_;            // none until another rank has given up
  int silent_ = kNoRank;           // the rank that it has given up
  uint64_t finished_ = 0;          // transfers
  std::map<Ticket, Transfers> in_flight_;
  Ticket last_ticket_ = 0;
  uint32_t heard_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology, int generation) {
  return std::make_unique<MpiTransport>(world, topology, generation);
}

}  // namespace hvd
