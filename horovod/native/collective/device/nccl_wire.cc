#include "collective/device/nccl_wire.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collective/device/gpu_backend.h"
#include "collective/device/piece_tables.h"

namespace hvd {
namespace {

constexpr size_t kLarge = size_t{4} << 20, kSmall = 8;
constexpr double kLeast = 1e-15;  // if the clock measures zero
constexpr int kRounds = 5;        // the fastest counts: other load only slows a round down

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
    for (int round = 0; round <= kRounds; ++round) {  // round 0 makes connections
      const Event begin = workspace.device().record(stream);
      work();
      const Event end = workspace.device().record(stream);
      workspace.await(end);
      const double seconds = workspace.device().milliseconds_between(begin, end) * 1e-3;
      if (round != 0) fastest = round == 1 ? seconds : std::min(fastest, seconds);
    }
    return std::max(fastest, kLeast);
  }

  // Leaves the figures unchanged for a rank that is not in the ring, or alone in it.
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
      if (text.size() != sizeof theirs) throw InternalError(Said::gpu_figures_damaged);
      std::memcpy(theirs, text.data(), sizeof theirs);
      for (size_t i = 0; i < 5; ++i) mine[i] = std::max(mine[i], theirs[i]);
    }
    std::memcpy(&costs, mine, sizeof mine);
    return costs;
  }

  const NcclContext& nccl_;
  std::byte *out_, *in_;
};

class NcclWire final : public Wire {
 public:
  explicit NcclWire(const NcclContext& nccl) : nccl_(nccl) {}

  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) override {
    std::vector<DeviceTransfer> out, in;
    for (const Outgoing& each : outgoing) out.push_back({each.to, const_cast<void*>(each.data), each.bytes});
    for (const Incoming& each : incoming) in.push_back({each.from, each.data, each.bytes});
    nccl_.workspace.to_wire();
    nccl_.exchange(std::move(out), std::move(in));
    arrived_[next_] = nccl_.workspace.on_wire();
    return next_++;
  }

  void finish(Ticket ticket) override { nccl_.workspace.from_wire(arrived_.extract(ticket).mapped()); }
  void progress() override {}
  uint32_t lag() const override { return 1; }

  // All parties together: enough for the full speed of a wire, and small beside a GPU's memory.
  int64_t message_bytes(int parties) const override {
    constexpr int64_t kAll = int64_t{8} << 20;
    return kAll / parties;
  }

 private:
  const NcclContext nccl_;
  std::unordered_map<Ticket, Event> arrived_;
  Ticket next_ = 0;
};

// Each step under way has a slot:
//
//   slot := own send buffer, of the other carriers' slices; those of [locals], of the own slice; receive_buffer[carriers]
class NcclLevel final : public HostLevel {
 public:
  explicit NcclLevel(Wire& wire) : wire_(wire) {}

  // Limits the bytes of elements and of messages in a step to sizes that GPUs of a host exchange well.
  int64_t elements_per_bucket(const HostRole& role, const TensorMemory&, const BucketReduction& reduction,
                              bool gather) const override {
    constexpr int64_t kStepElementBytes = int64_t{16} << 20, kRun = Layout::kRun;
    const int64_t buckets = int64_t{role.carriers} * (gather ? 1 : role.hosts);
    const int64_t elements = kStepElementBytes / static_cast<int64_t>(size_of(reduction.dtype)) / buckets;
    const int64_t by_messages = elements_of(wire_.message_bytes(role.carriers * role.hosts), reduction);
    return std::max(kRun, std::min(elements / kRun * kRun, by_messages));
  }

  bool begin(const HostSteps& steps) override {
    steps_.emplace(steps);
    const HostRole& role = steps.role;
    receive_offsets_.resize(static_cast<size_t>(role.carriers));
    std::vector<size_t> receive_buffers(receive_offsets_.size());
    for (uint32_t step = 0; step < steps.count; ++step) {
      inputs_offset_ = std::max(inputs_offset_, steps.send_offset(step, role.carriers, role.local_rank));
      if (role.carries()) own_bytes_ = std::max(own_bytes_, steps.slice_bytes(step, role.local_rank));
      for (size_t carrier = 0; carrier < receive_buffers.size(); ++carrier) {
        receive_buffers[carrier] = std::max(receive_buffers[carrier], steps.receive_bytes(step, static_cast<int>(carrier)));
      }
    }
    inputs_offset_ = padded_for_gpu(inputs_offset_);
    own_bytes_ = padded_for_gpu(own_bytes_);
    slot_bytes_ = inputs_offset_ + role.locals.size() * own_bytes_;
    for (size_t carrier = 0; carrier < receive_buffers.size(); ++carrier) {
      receive_offsets_[carrier] = slot_bytes_;
      slot_bytes_ += padded_for_gpu(receive_buffers[carrier]);
    }
    memory_ = steps.memory.memory(std::min(steps.count, kSlots) * slot_bytes_);
    return true;
  }

  void end() override {}

  void await_room(uint32_t) override {}

  std::byte* send_buffer(uint32_t step, int slice) override {
    return slot(step) + steps_->send_offset(step, slice, steps_->role.local_rank);
  }

  void sent(uint32_t step) override {
    const HostRole& role = steps_->role;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int carrier = 0; carrier < role.carriers; ++carrier) {
      if (carrier == role.local_rank) continue;
      outgoing.push_back(
          {role.locals[static_cast<size_t>(carrier)], send_buffer(step, carrier), steps_->slice_bytes(step, carrier)});
    }
    for (size_t r = 0; role.carries() && r < role.locals.size(); ++r) {
      const int local = static_cast<int>(r);
      if (local == role.local_rank) continue;
      incoming.push_back({role.locals[r], send_buffer_of(local, step), steps_->slice_bytes(step, role.local_rank)});
    }
    sent_[step % kSlots] = wire_.start(outgoing, incoming, memory_);
  }

  void await_sent(uint32_t step) override { wire_.finish(*std::exchange(sent_[step % kSlots], std::nullopt)); }

  std::byte* send_buffer_of(int local_rank, uint32_t step) override {
    return slot(step) + inputs_offset_ + static_cast<size_t>(local_rank) * own_bytes_;
  }

  void taken() override {}
  void await_receive_buffer(uint32_t) override {}

  std::byte* receive_buffer(int carrier, uint32_t step) override {
    return slot(step) + receive_offsets_[static_cast<size_t>(carrier)];
  }

  void publish(uint32_t step) override {
    const HostRole& role = steps_->role;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int carrier = 0; carrier < role.carriers; ++carrier) {
      const Steps& slice = steps_->slices[static_cast<size_t>(carrier)];
      for (int party = 0; party < slice.parties(); ++party) {
        std::byte* const message = receive_buffer(carrier, step) + slice.offset(step, party);
        const size_t bytes = slice.bytes(step, party);
        if (carrier != role.local_rank) {
          incoming.push_back({role.locals[static_cast<size_t>(carrier)], message, bytes});
          continue;
        }
        for (size_t r = 0; r < role.locals.size(); ++r) {
          if (static_cast<int>(r) != role.local_rank) outgoing.push_back({role.locals[r], message, bytes});
        }
      }
    }
    published_[step % kSlots] = wire_.start(outgoing, incoming, memory_);
  }

  void await_published(uint32_t step, int) override {
    if (auto& ticket = published_[step % kSlots]) wire_.finish(*std::exchange(ticket, std::nullopt));
  }

  void collected() override {}

 private:
  // More than the last stage lags behind the first, so a slot is free when it is used again.
  static constexpr uint32_t kSlots = 6;

  std::byte* slot(uint32_t step) const { return memory_.get() + step % kSlots * slot_bytes_; }

  Wire& wire_;
  std::optional<HostSteps> steps_;
  std::shared_ptr<std::byte[]> memory_;
  size_t inputs_offset_ = 0, own_bytes_ = 0;  // where the data of the own slice arrives, and the bytes of one rank
  std::vector<size_t> receive_offsets_;       // by carrier
  size_t slot_bytes_ = 0;
  std::optional<Ticket> sent_[kSlots], published_[kSlots];
};

}  // namespace

void NcclContext::exchange(std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) const {
  auto is_nothing = [](const DeviceTransfer& transfer) { return transfer.bytes == 0; };
  std::erase_if(outgoing, is_nothing);
  std::erase_if(incoming, is_nothing);
  for (const DeviceTransfer& out : outgoing) context.wire_bytes += static_cast<int64_t>(out.bytes);
  if (!outgoing.empty() || !incoming.empty()) communicator.exchange(outgoing, incoming);
}

GpuCosts measure_gpu(const NcclContext& nccl) { return GpuMeasurement(nccl).run(); }

std::unique_ptr<Wire> make_nccl_wire(const NcclContext& nccl) { return std::make_unique<NcclWire>(nccl); }

std::unique_ptr<HostLevel> make_nccl_level(Wire& wire) { return std::make_unique<NcclLevel>(wire); }

}  // namespace hvd
