#include "collective/device/measure_gpu.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collective/device/device_agreement.h"

namespace hvd {
namespace {

constexpr size_t kLarge = size_t{4} << 20, kSmall = 8;
constexpr double kLeast = 1e-15;  // where a clock saw nothing
constexpr int kRounds = 5;        // the fastest counts: whatever else goes on only makes it slower

class GpuMeasurement {
 public:
  explicit GpuMeasurement(const NcclContext& nccl)
      : nccl_(nccl), out_(nccl.workspace.scratch(2 * kLarge)), in_(out_ + kLarge) {}

  GpuCosts run() {
    GpuCosts costs;
    costs.kernel_byte = seconds_of(nccl_.workspace.stream(),
                                   [&] { nccl_.workspace.device().copy(nccl_.workspace.stream(), in_, out_, kLarge); }) /
                        static_cast<double>(kLarge);
    std::vector<int> first_of_each_host;
    for (const std::vector<int>& ranks : nccl_.context.group.hosts()) {
      first_of_each_host.push_back(ranks.front());
      if (std::find(ranks.begin(), ranks.end(), nccl_.rank()) == ranks.end()) continue;
      measure_ring(ranks, &costs.local_latency, &costs.local_byte);
    }
    measure_ring(first_of_each_host, &costs.network_latency, &costs.network_byte);
    return slowest_of_all(costs);
  }

 private:
  double seconds_of(Stream stream, const std::function<void()>& work) const {
    DeviceWorkspace& workspace = nccl_.workspace;
    double fastest = 0;
    for (int round = 0; round <= kRounds; ++round) {  // the first makes connections
      const Event begin = workspace.device().record(stream);
      work();
      const Event end = workspace.device().record(stream);
      workspace.await(end);
      const double seconds = workspace.device().milliseconds_between(begin, end) * 1e-3;
      if (round != 0) fastest = round == 1 ? seconds : std::min(fastest, seconds);
    }
    return std::max(fastest, kLeast);
  }

  // Of a rank that is not in the ring, or alone there, the figures stay as they are.
  void measure_ring(const std::vector<int>& ring, double* latency, double* byte) const {
    const auto own = std::find(ring.begin(), ring.end(), nccl_.rank());
    if (own == ring.end() || ring.size() == 1) return;
    const auto place = static_cast<size_t>(own - ring.begin());
    const int next = ring[(place + 1) % ring.size()], previous = ring[(place + ring.size() - 1) % ring.size()];
    auto seconds = [&](size_t bytes) {
      return seconds_of(nccl_.workspace.wire(), [&] {
        const DeviceTransfer outgoing[] = {{next, out_, bytes}}, incoming[] = {{previous, in_, bytes}};
        nccl_.communicator.exchange(outgoing, incoming);
      });
    };
    const double small = seconds(kSmall), large = seconds(kLarge);
    *latency = small;
    *byte = std::max(large - small, large / 2) / static_cast<double>(kLarge);
  }

  GpuCosts slowest_of_all(GpuCosts costs) const {
    static_assert(sizeof(GpuCosts) == 5 * sizeof(double));
    double mine[5];
    std::memcpy(mine, &costs, sizeof mine);
    const std::string own(reinterpret_cast<const char*>(mine), sizeof mine);
    for (const std::string& text : exchange_texts(nccl_.context, own)) {
      double theirs[5];
      if (text.size() != sizeof theirs) throw InternalError("ranks tell each other different figures of their GPUs");
      std::memcpy(theirs, text.data(), sizeof theirs);
      for (size_t i = 0; i < 5; ++i) mine[i] = std::max(mine[i], theirs[i]);
    }
    std::memcpy(&costs, mine, sizeof mine);
    return costs;
  }

  const NcclContext& nccl_;
  std::byte *out_, *in_;
};

}  // namespace

GpuCosts measure_gpu(const NcclContext& nccl) { return GpuMeasurement(nccl).run(); }

}  // namespace hvd
