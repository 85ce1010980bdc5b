// Tensors in memory of the CPU: messages are made straight out of them, and a rank reads its own in place where it can.
#pragma once

#include <optional>
#include <vector>

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/slices.h"
#include "collective/tensor_memory.h"

namespace hvd {

// What the CPU does with the buckets of a group.
class BucketsOf {
 public:
  BucketsOf(const Steps& group, const BucketReduction& reduction, const CollectiveContext& context);

  const Steps& group() const { return group_; }
  Bucket& operator[](size_t i) { return buckets_[i]; }
  int64_t saturated() const;

 private:
  const Steps& group_;
  std::vector<Bucket> buckets_;
};

class CpuTensors final : public TensorMemory {
 public:
  explicit CpuTensors(CollectiveContext& context) : context_(context) {}

  bool is_elsewhere() const override { return false; }
  ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) override {
    return claim_on_cpu(of, stage, begin, count);
  }
  void open(Window&, int) override {}
  std::shared_ptr<std::byte[]> memory(size_t bytes) override {
    context_.send.at_least(bytes);
    return context_.send.memory();
  }

  void begin(std::span<const Steps> groups, int self) override;
  void send(uint32_t step, std::byte* messages, int left_out) override;
  void await_sent(uint32_t) override {}
  void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
              std::byte* result) override;
  void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) override;
  void await_received(uint32_t) override {}
  int64_t saturated() const override;

  void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) override;
  void begin_sends(int own, const BucketReduction& reduction) override;
  void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) override;

 private:
  CollectiveContext& context_;
  std::span<const Steps> groups_;
  std::vector<BucketsOf> buckets_;  // by group
  std::optional<BucketsOf> sums_;   // of the group that this rank sums over its host
};

}  // namespace hvd
