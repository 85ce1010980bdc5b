#include "collective/device/gpu_tensors.h"

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "collective/device/piece_tables.h"

namespace hvd {
namespace {

class GpuTensors final : public TensorMemory {
 public:
  explicit GpuTensors(DeviceWorkspace& workspace) : workspace_(workspace) {}

  bool is_elsewhere() const override { return false; }
  ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) override {
    return of.claim_on(workspace_.device(), workspace_.stream(), stage, begin, count, workspace_.progress_callback());
  }
  void open(Window&, int) override {}
  std::shared_ptr<std::byte[]> memory(size_t bytes) override {
    return {workspace_.scratch(bytes, allocated_++), [](std::byte*) {}};
  }

  void begin(std::span<const Steps> groups, int self) override {
    groups_ = groups;
    self_ = self;
  }

  void send(uint32_t step, std::byte* messages, int) override {
    const PieceTable table = pieces_[tables(step).messages.front()];
    if (table.count == 0) return;
    const BucketReduction& reduction = groups_.front().bucket(0).reduction();
    write_messages(kernels(), workspace_.stream(), reduction, table, reduction.prescale, messages);
  }

  void await_sent(uint32_t) override {}

  void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
              std::byte* result) override {
    const StepTables& of_step = tables(step);
    const PieceTable table = pieces_[groups_[group].gather() ? of_step.messages[group] : of_step.results];
    if (table.count == 0) return;
    const BucketReduction& reduction = groups_[group].bucket(bucket).reduction();
    DeviceReduction kernel = summing(reduction, codec_of(reduction), contributions);
    kernel.to_destination = to_destination;
    kernel.result = result;
    kernels().reduce(workspace_.stream(), table, kernel);
  }

  void receive(uint32_t step, size_t group, int, int, const std::byte* messages, int) override {
    const Steps& of = groups_[group];
    if (of.gather()) return reduce(step, group, 0, of.each(step, messages), true, nullptr);
    const PieceTable table = pieces_[tables(step).messages[group]];
    if (table.count == 0) return;
    read_messages(kernels(), workspace_.stream(), of.bucket(0).reduction(), table, messages);
  }

  void await_received(uint32_t) override {}
  int64_t saturated() const override { return 0; }  // kernels count saturated values

  // The send buffers of the groups lie one after the other.
  void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) override {
    const PieceTable table = pieces_[tables(step).sends];
    if (table.count == 0) return;
    std::byte* const first =
        *std::find_if(groups.begin(), groups.end(), [](const std::byte* group) { return group != nullptr; });
    kernels().pack(workspace_.stream(), over_ranks_.dtype, table, 1.0, first);
  }

  void begin_sends(int own, const BucketReduction& reduction) override {
    has_sends_ = true;
    has_sums_ = own != Steps::kNobody;
    if (has_sums_) own_ = static_cast<size_t>(own);
    over_ranks_ = reduction;
  }

  void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) override {
    const PieceTable table = pieces_[tables(step).sums[bucket]];
    if (table.count == 0) return;
    DeviceReduction kernel = summing(over_ranks_, {}, data);
    kernel.result = message;
    kernels().reduce(workspace_.stream(), table, kernel);
  }

 private:
  // The tables of a step: messages of each group; results of this rank's bucket; data sent inside the host; sums of each bucket
  // of the own group.
  struct StepTables {
    std::vector<size_t> messages;
    size_t results = 0, sends = 0;
    std::vector<size_t> sums;
  };

  // All steps' tables are uploaded at the first call, because the host may be far ahead of its GPU.
  const StepTables& tables(uint32_t step) {
    if (steps_.empty()) {
      for (uint32_t each = 0; each < steps_of(groups_); ++each) steps_.push_back(made(each));
      pieces_.upload(workspace_.uploads());
    }
    return steps_[step];
  }

  StepTables made(uint32_t step) {
    StepTables made;
    for (const Steps& group : groups_) {
      made.messages.push_back(pieces_.begin());
      for (size_t i = 0; i < group.buckets(); ++i) {
        const int party = static_cast<int>(i);
        const bool is_in_place = !group.gather() && party == self_ && group.bucket(i).reduction().codec == nullptr;
        const auto offset = static_cast<int64_t>(group.offset(step, party));
        if (!is_in_place) add_pieces(group.bucket(i), group.range(step, i), {.message = offset}, pieces_);
      }
    }
    const Steps& own = groups_[own_];
    const auto self = static_cast<size_t>(self_);
    made.results = pieces_.begin();
    if (!own.gather()) add_pieces(own.bucket(self), own.range(step, self), {.stage = Stage::kResult}, pieces_);
    made.sends = pieces_.begin();
    size_t at = 0;
    for (size_t g = 0; has_sends_ && g < groups_.size(); ++g) {
      if (has_sums_ && g == own_) continue;
      const Steps& group = groups_[g];
      for (size_t i = 0; i < group.buckets(); ++i) {
        const auto offset = static_cast<int64_t>(at + send_offset(group, step, i));
        add_pieces(group.bucket(i), group.range(step, i), {.message = offset, .is_of_elements = true}, pieces_);
      }
      at += aligned(send_offset(group, step, group.buckets()));
    }
    for (size_t i = 0; has_sums_ && i < own.buckets(); ++i) {
      made.sums.push_back(pieces_.begin());
      add_pieces(own.bucket(i), own.range(step, i), {}, pieces_);
    }
    return made;
  }

  DeviceKernels& kernels() const { return workspace_.kernels(); }

  DeviceWorkspace& workspace_;
  size_t allocated_ = 0;
  std::span<const Steps> groups_;
  int self_ = 0;
  size_t own_ = 0;  // the group whose results this rank makes
  bool has_sends_ = false, has_sums_ = false;
  BucketReduction over_ranks_;
  PieceTables pieces_;
  std::vector<StepTables> steps_;
};

}  // namespace

std::unique_ptr<TensorMemory> make_gpu_tensors(DeviceWorkspace& workspace) { return std::make_unique<GpuTensors>(workspace); }

}  // namespace hvd
