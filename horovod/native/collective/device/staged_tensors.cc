#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "collective/device/gpu_tensors.h"
#include "collective/device/piece_tables.h"

namespace hvd {
namespace {

// Mixed into the key of a host's sum, so that its rounding uses other random numbers than the carrier's contribution.
constexpr uint64_t kKeyOfSums = 0xA5A5C3C39696F00Fu;

// The GPU's part of an allreduce on the host's route. Contributions are encoded and copied to the host; results are copied back
// and decoded. Each stage has its own stream, so that steps form a pipeline.
//
//   tensors --encode--> memory of the GPU --copy--> host    (send)
//   tensors <--decode-- memory of the GPU <--copy-- host    (receive)
//
// A step's messages lie one after the other, at the same offsets in both directions: group by group, each aligned to 64 bytes,
// and in a group as in Steps. Without a codec messages are elements. Calls return at once, except the await functions.
class HostLanes {
 public:
  // The most steps between the first and the last stage on the GPU.
  static constexpr uint32_t kDepth = 4;

  // The groups have one codec and dtype, and must outlive the lanes. `prescale` applies to encoded tensors only.
  HostLanes(HostWorkspace& workspace, std::span<const Steps> groups, double prescale)
      : workspace_(workspace), groups_(groups), prescale_(prescale), reduction_(groups_.front().bucket(0).reduction()) {
    Device& device = workspace_.device;
    begin_ = device.record(workspace_.stream);
    make_tables();
    const Event ready = device.record(workspace_.stream);  // the tensors and the tables are ready
    device.wait(workspace_.encoding, ready);
    device.wait(workspace_.decoding, ready);
    size_t most = 0;
    for (uint32_t step = 0; step < steps_of(groups_); ++step) most = std::max(most, bytes(step));
    const uint32_t depth = std::min(kDepth, steps_of(groups_));
    const DeviceMemory memory = workspace_.on_gpu.take(2 * depth * aligned(most));
    for (uint32_t i = 0; i < depth; ++i) {
      sending_[i].memory = memory.get() + 2 * i * aligned(most);
      receiving_[i].memory = sending_[i].memory + aligned(most);
    }
  }

  size_t bytes(uint32_t step) const { return offset(step, groups_.size()); }

  size_t offset(uint32_t step, size_t group) const {
    size_t offset = 0;
    for (size_t before = 0; before < group; ++before)
      offset += aligned(groups_[before].offset(step, groups_[before].parties()));
    return offset;
  }

  // `to` is free host memory of bytes(step).
  void send(uint32_t step, std::byte* to) {
    Device& device = workspace_.device;
    Flight& flight = sending(step);
    // The caller has awaited the last copy out of this memory.
    const Event begin = device.record(workspace_.encoding);
    write_messages(device.kernels(), workspace_.encoding, reduction_, tables_[step], prescale_, flight.memory);
    flight.processed = device.record(workspace_.encoding);
    workspace_.stopwatch.add(&HostTimes::encode, begin, flight.processed);
    device.wait(workspace_.to_host, flight.processed);
    flight.begin = device.record(workspace_.to_host);
    device.copy(workspace_.to_host, to, flight.memory, bytes(step));
    flight.copied = device.record(workspace_.to_host);
    workspace_.stopwatch.add(&HostTimes::copy_to_host, flight.begin, flight.copied);
  }

  void await_sent(uint32_t step) { workspace_.await(sending(step).copied); }

  // Call begin, receive, end and await in this order; after await the host memory of the step is free.
  void begin_receiving(uint32_t step) {
    Device& device = workspace_.device;
    Flight& flight = receiving(step);
    if (flight.processed) device.wait(workspace_.from_host, flight.processed);
    flight.begin = device.record(workspace_.from_host);
  }

  void receive(uint32_t step, size_t offset, const std::byte* from, size_t bytes) {
    if (bytes != 0) workspace_.device.copy(workspace_.from_host, receiving(step).memory + offset, from, bytes);
  }

  void end_receiving(uint32_t step) {
    Device& device = workspace_.device;
    Flight& flight = receiving(step);
    flight.copied = device.record(workspace_.from_host);
    workspace_.stopwatch.add(&HostTimes::copy_back, flight.begin, flight.copied);
    device.wait(workspace_.decoding, flight.copied);
    const Event begin = device.record(workspace_.decoding);
    read_messages(device.kernels(), workspace_.decoding, reduction_, tables_[step], flight.memory);
    flight.processed = device.record(workspace_.decoding);
    workspace_.stopwatch.add(&HostTimes::decode, begin, flight.processed);
  }

  void await_received(uint32_t step) { workspace_.await(receiving(step).copied); }

  // The stream waits until all results are decoded.
  void finish() {
    Device& device = workspace_.device;
    device.wait(workspace_.stream, device.record(workspace_.encoding));
    device.wait(workspace_.stream, device.record(workspace_.decoding));
    workspace_.stopwatch.add(&HostTimes::whole, begin_, device.record(workspace_.stream));
  }

 private:
  struct Flight {  // one direction of a step
    std::byte* memory = nullptr;
    Event begin;  // of the copy
    Event copied;
    Event processed;  // by the kernel that reads or writes the memory
  };
  Flight& sending(uint32_t step) { return sending_[step % kDepth]; }
  Flight& receiving(uint32_t step) { return receiving_[step % kDepth]; }

  void make_tables() {
    for (uint32_t step = 0; step < steps_of(groups_); ++step) {
      tables_.begin();
      for (size_t group = 0; group < groups_.size(); ++group) {
        const Steps& steps = groups_[group];
        const size_t base = offset(step, group);
        for (size_t i = 0; i < steps.buckets(); ++i) {
          const size_t message = base + steps.offset(step, static_cast<int>(i));
          add_pieces(steps.bucket(i), steps.range(step, i), {.message = static_cast<int64_t>(message)}, tables_);
        }
      }
    }
    tables_.upload(workspace_.uploads);
  }

  // Constant after construction.
  HostWorkspace& workspace_;
  const std::span<const Steps> groups_;
  const double prescale_;
  const BucketReduction& reduction_;
  PieceTables tables_;
  Event begin_;

  std::array<Flight, kDepth> sending_, receiving_;
};

class StagedTensors final : public TensorMemory {
 public:
  StagedTensors(HostWorkspace& workspace, double prescale) : workspace_(workspace), prescale_(prescale) {}

  bool is_elsewhere() const override { return true; }
  // Residuals of the sums that this CPU makes.
  ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) override {
    return claim_on_cpu(of, stage, begin, count);
  }
  void open(Window& window, int ranks) override { workspace_.pin(window, ranks); }
  std::shared_ptr<std::byte[]> memory(size_t bytes) override { return workspace_.pinned.take(bytes); }

  void begin(std::span<const Steps> groups, int) override {
    groups_ = groups;
    buckets_.reserve(groups.size());
    for (const Steps& group : groups) buckets_.emplace_back(group, group.bucket(0).reduction(), workspace_.context);
    lanes_ = std::make_unique<HostLanes>(workspace_, groups, prescale_);
  }

  void send(uint32_t step, std::byte* messages, int) override { lanes_->send(step, messages); }
  void await_sent(uint32_t step) override { lanes_->await_sent(step); }

  void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
              std::byte* result) override {
    const auto begin = std::chrono::steady_clock::now();
    buckets_[group][bucket].reduce(groups_[group].range(step, bucket), contributions, to_destination, result);
    workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
  }

  void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int) override {
    const Steps& of = groups_[group];
    if (group == 0 && first == 0) lanes_->begin_receiving(step);
    const size_t offset = of.offset(step, first);
    lanes_->receive(step, lanes_->offset(step, group) + offset, messages, of.offset(step, last + 1) - offset);
    if (group + 1 == groups_.size() && last + 1 == of.parties()) lanes_->end_receiving(step);
  }

  void await_received(uint32_t step) override { lanes_->await_received(step); }

  int64_t saturated() const override {
    int64_t sum = sums_ ? sums_->saturated() : 0;
    for (const BucketsOf& group : buckets_) sum += group.saturated();
    return sum;
  }

  size_t send_offset(const Steps& group, uint32_t step, size_t bucket) const override {
    return group.offset(step, static_cast<int>(bucket));
  }

  int64_t elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const override {
    return elements_of(bytes, reduction);
  }

  // The send buffers of the groups lie one after the other.
  void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) override { lanes_->send(step, groups.front()); }

  // The losses of encoding the host's sum are collected here, starting from 0, because the residuals are in GPU memory.
  void begin_sends(int own, const BucketReduction& reduction) override {
    if (own == Steps::kNobody) return;
    const Steps& of = groups_[static_cast<size_t>(own)];
    std::vector<std::vector<BucketTensor>> summed;
    int64_t kept = 0;
    for (size_t i = 0; i < of.buckets(); ++i) {
      summed.push_back(of.bucket(i).tensors());
      for (const BucketTensor& tensor : summed.back()) kept += tensor.sent.values ? tensor.count : 0;
    }
    const size_t bytes = static_cast<size_t>(kept) * sizeof(float);
    if (kept != 0) {
      lost_memory_ = workspace_.pinned.take(bytes);
      std::memset(lost_memory_.get(), 0, bytes);
    }
    auto* next = reinterpret_cast<float*>(lost_memory_.get());
    std::vector<Layout> layouts;
    for (std::vector<BucketTensor>& tensors : summed) {
      for (BucketTensor& tensor : tensors) {
        tensor.sent_key ^= kKeyOfSums;
        if (tensor.sent.values == nullptr) continue;
        lost_.push_back({tensor.sent.values, next, tensor.count});
        tensor.sent = {next, tensor.feedback->bound_of_sums()};
        next += tensor.count;
      }
      layouts.emplace_back(std::move(tensors), reduction);
    }
    summed_.emplace(of.like(std::move(layouts)));
    sums_.emplace(*summed_, reduction, workspace_.context);
  }

  void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) override {
    const auto begin = std::chrono::steady_clock::now();
    (*sums_)[bucket].pack_sum_of_messages(summed_->range(step, bucket), data, message);
    workspace_.stopwatch.add_since(&HostTimes::reduce, begin);
  }

  // The stream waits for the last decoding, and the losses of the host's sums are added to their carrier's residuals.
  void finish() override {
    if (lanes_ == nullptr) return;  // there was nothing to reduce
    lanes_->finish();
    give_residuals_back();
  }

 private:
  struct Lost {
    float* residual;    // in GPU memory
    const float* here;  // in host memory: what the sum lost of the same elements
    int64_t count;
  };

  // The carrier's residuals get the loss of the host's sum, beside the loss of its contribution. Both have the same units, and
  // are part of the next sum.
  void give_residuals_back() {
    if (lost_.empty()) return;
    Device& device = workspace_.device;
    int64_t count = 0;
    PieceTables tables;
    tables.begin();
    for (const Lost& lost : lost_) {
      DevicePiece piece;
      piece.source = lost.residual;
      piece.destination = lost.residual;
      piece.count = lost.count;
      piece.message_offset = piece.elements_offset = count * static_cast<int64_t>(sizeof(float));
      tables.add(piece);
      count += lost.count;
    }
    tables.upload(workspace_.uploads);
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const DeviceMemory there = workspace_.on_gpu.take(bytes);
    device.copy(workspace_.stream, there.get(), lost_memory_.get(), bytes);
    const std::byte* const messages[] = {nullptr, there.get()};
    DeviceReduction sum;
    sum.messages = messages;
    sum.to_destination = true;
    device.kernels().reduce(workspace_.stream, tables[0], sum);
  }

  HostWorkspace& workspace_;
  const double prescale_;
  std::span<const Steps> groups_;
  std::vector<BucketsOf> buckets_;  // for the sums of this CPU
  std::unique_ptr<HostLanes> lanes_;
  std::optional<Steps> summed_;  // the group that this rank sums over its host
  std::optional<BucketsOf> sums_;
  DeviceMemory lost_memory_;
  std::vector<Lost> lost_;
};

}  // namespace

std::unique_ptr<TensorMemory> make_staged_tensors(HostWorkspace& workspace, double prescale) {
  return std::make_unique<StagedTensors>(workspace, prescale);
}

}  // namespace hvd
