#include "transport/mpi/mpi_transport.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "base/futex.h"
#include "transport/mpi/check.h"

namespace hvd {
namespace {

using std::chrono::microseconds;

constexpr size_t kLargestTransfer = size_t{1} << 30;  // MPI counts are C ints

// MPI only progresses, and only tells, when asked. Asking in a loop would take the training thread's core, so the pauses
// between two questions grow from nothing to this.
constexpr microseconds kLongestPause{100};
constexpr int kTestsBeforePausing = 200;
constexpr Patience kSleepAtOnce{0, microseconds(0)};

class Backoff {
 public:
  void pause() {
    if (++tests_ <= kTestsBeforePausing) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
  }

 private:
  int tests_ = 0;
  microseconds pause_{5};
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm world, const Topology& topology, int generation)
      : world_(world), topology_(topology), message_tag_(2 * generation), bulk_tag_(2 * generation + 1) {}
  ~MpiTransport() override {
    for (Posted& posted : posted_) MPI_Request_free(&posted.request);
  }

  const char* name() const override { return "mpi"; }
  const Topology& topology() const override { return topology_; }

  void post(int to, std::span<const std::byte> message) override {
    Posted& posted = posted_.emplace_back();
    posted.bytes.assign(message.begin(), message.end());
    check(MPI_Isend(posted.bytes.data(), static_cast<int>(posted.bytes.size()), MPI_BYTE, to, message_tag_, world_,
                    &posted.request),
          "MPI_Isend");
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
    for (forget_sent(); !posted_.empty(); forget_sent()) backoff.pause();
  }

  void wait(microseconds timeout, bool eager) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    // With an answer on its way the first looks come quickly; a rank with nothing to do looks once a tick.
    microseconds pause = eager ? microseconds(10) : microseconds(1000);
    while (std::chrono::steady_clock::now() < deadline) {
      int found = 0;
      check(MPI_Iprobe(MPI_ANY_SOURCE, message_tag_, world_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (found || wait_for_change(doorbell_, heard_, pause, kSleepAtOnce) != heard_) return;
      if (eager) pause = std::min(2 * pause, kLongestPause);
    }
  }

  void wake() override { advance(doorbell_); }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    std::vector<MPI_Request> requests;
    for (const Incoming& in : incoming) {
      for (size_t at = 0; at < in.bytes; at += kLargestTransfer) {
        const int count = static_cast<int>(std::min(kLargestTransfer, in.bytes - at));
        check(MPI_Irecv(static_cast<std::byte*>(in.data) + at, count, MPI_BYTE, in.from, bulk_tag_, world_,
                        &requests.emplace_back()),
              "MPI_Irecv");
      }
    }
    for (const Outgoing& out : outgoing) {
      for (size_t at = 0; at < out.bytes; at += kLargestTransfer) {
        const int count = static_cast<int>(std::min(kLargestTransfer, out.bytes - at));
        check(MPI_Isend(static_cast<const std::byte*>(out.data) + at, count, MPI_BYTE, out.to, bulk_tag_, world_,
                        &requests.emplace_back()),
              "MPI_Isend");
      }
    }
    Backoff backoff;
    for (;;) {
      int complete = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE),
            "MPI_Testall");
      if (complete) return;
      backoff.pause();
    }
  }

 private:
  struct Posted {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

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
  const int message_tag_, bulk_tag_;
  FutexCounter doorbell_;
  // Engine thread only.
  std::deque<Posted> posted_;
  uint32_t heard_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology, int generation) {
  return std::make_unique<MpiTransport>(world, topology, generation);
}

}  // namespace hvd
