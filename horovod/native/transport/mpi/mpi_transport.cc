#include "transport/mpi/mpi_transport.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <thread>

#include "base/futex.h"
#include "transport/mpi/check.h"

namespace hvd {
namespace {

using std::chrono::microseconds;

constexpr size_t kLargestTransfer = size_t{1} << 30;  // MPI counts are C ints

constexpr size_t kPiecesUnderWay = 16;  // of a transfer

// MPI only progresses, and only tells, when asked. Asking in a loop would take the training thread's core, so the pauses
// between two questions grow from nothing to this.
constexpr microseconds kLongestPause{100};
constexpr int kTestsBeforePausing = 200;
constexpr std::chrono::seconds kLongestFarewell{1};
constexpr Patience kSleepAtOnce{0, microseconds(0)};

class Backoff {
 public:
  // Yields at first, then sleeps, longer and longer; true if it slept.
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

// Transfers that were started together. Whatever happens, none of them writes into the caller's memory any more when this is
// gone.
class Transfers {
 public:
  explicit Transfers(std::shared_ptr<void> keep_alive) : keep_alive_(std::move(keep_alive)) {}
  Transfers(const Transfers&) = delete;
  ~Transfers() {
    if (requests_.empty()) return;
    for (size_t i = 0; i < receives_; ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
    // What has begun to arrive cannot be cancelled, and from a rank that has stopped the rest does not come.
    const auto deadline = std::chrono::steady_clock::now() + kLongestFarewell;
    for (size_t i = 0; i < receives_; ++i) {
      int done = requests_[i] == MPI_REQUEST_NULL;
      while (!done && (keep_alive_ == nullptr || std::chrono::steady_clock::now() < deadline)) {
        if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
      }
    }
    const bool is_over = std::all_of(requests_.begin(), requests_.end(), [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
    if (!is_over && keep_alive_) new std::shared_ptr<void>(std::move(keep_alive_));  // MPI's until it is finalised
  }
  // Receives come before sends.
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
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses_) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "a transfer");
      }
    }
    check(code, "MPI_Testall");
    return complete != 0;
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
        abandon_tag_(3 * generation + 2) {}
  ~MpiTransport() override {
    forget_sent();
    // A rank that has stopped may never take the rest. MPI keeps reading it until it is finalised, so it is not freed.
    if (!posted_.empty()) new std::deque<Posted>(std::move(posted_));
  }

  const char* name() const override { return "mpi"; }
  const Topology& topology() const override { return topology_; }

  void post(int to, std::span<const std::byte> message) override {
    post(to, message, message_tag_);
  }

  void abandon() override {
    for (int to = 0; to < size(); ++to) {
      if (to != rank()) post(to, {}, abandon_tag_);
    }
  }

  std::optional<Message> receive() override {
    heard_ = doorbell_.count.load(std::memory_order_acquire);
    forget_sent();
    int found = 0;
    MPI_Message handle;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, message_tag_, world_, &found, &handle, &status), "MPI_Improbe");
    if (!found) return std::nullopt;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Message message{status.MPI_SOURCE, std::vector<std::byte>(static_cast<size_t>(bytes))};
    check(MPI_Mrecv(message.bytes.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
    return message;
  }

  void flush() override {
    Backoff backoff;
    for (forget_sent(); !posted_.empty(); forget_sent()) {
      if (backoff.pause()) throw_if_abandoned();
    }
  }

  void wait(microseconds timeout, bool eager) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    // With an answer on its way the first looks come quickly; a rank with nothing to do looks once a tick.
    microseconds pause = std::min(timeout, eager ? microseconds(10) : microseconds(1000));
    while (std::chrono::steady_clock::now() < deadline) {
      int found = 0;
      check(MPI_Iprobe(MPI_ANY_SOURCE, message_tag_, world_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (found || wait_for_change(doorbell_, heard_, pause, kSleepAtOnce) != heard_) return;
      throw_if_abandoned();
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

  // In pieces that leave at once, several at a time: both directions of every link are busy.
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

  // Any question makes MPI move what it can; this one has to be asked anyway.
  void progress() override { throw_if_abandoned(); }

  void finish(Ticket ticket) override {
    progress();  // others may be under way that wait for this rank, even if these are complete
    const auto position = in_flight_.find(ticket);
    Backoff backoff;
    while (!position->second.are_complete()) {
      serve_();
      if (backoff.pause()) throw_if_abandoned();
    }
    in_flight_.erase(position);
  }

  void cancel() override { in_flight_.clear(); }

 private:
  struct Posted {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void post(int to, std::span<const std::byte> message, int tag) {
    Posted& posted = posted_.emplace_back();
    posted.bytes.assign(message.begin(), message.end());
    check(MPI_Isend(posted.bytes.data(), static_cast<int>(posted.bytes.size()), MPI_BYTE, to, tag, world_,
                    &posted.request),
          "MPI_Isend");
  }

  void throw_if_abandoned() {
    int found = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, abandon_tag_, world_, &found, &status), "MPI_Iprobe");
    if (!found) return;
    throw InternalError("rank " + std::to_string(rank()) + " lost rank " + std::to_string(status.MPI_SOURCE) +
                        ", which could not go on; its own error says why");
  }

  void forget_sent() {
    while (!posted_.empty()) {
      int sent = 0;
      check(MPI_Test(&posted_.front().request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (!sent) return;
      posted_.pop_front();
    }
  }

  const MPI_Comm world_;
  const Topology topology_;
  const int message_tag_, bulk_tag_, abandon_tag_;
  FutexCounter doorbell_;
  // Engine thread only.
  std::deque<Posted> posted_;
  std::map<Ticket, Transfers> in_flight_;
  Ticket last_ticket_ = 0;
  uint32_t heard_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology, int generation) {
  return std::make_unique<MpiTransport>(world, topology, generation);
}

}  // namespace hvd
