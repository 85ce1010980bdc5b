// Tensors in memory of the CPU: messages are made straight out of them, and a rank reads its own in place where it can.
#pragma once

#include "collective/context.h"
#include "collective/tensor_memory.h"

namespace hvd {

class CpuTensors final : public TensorMemory {
 public:
  explicit CpuTensors(CollectiveContext& context) : context_(context) {}

  bool is_elsewhere() const override { return false; }
  void open(Window&, int) override {}
  std::shared_ptr<std::byte[]> memory(size_t bytes) override {
    context_.send.at_least(bytes);
    return context_.send.memory();
  }

  void begin(std::span<const Steps> groups) override { groups_ = groups; }
  void send(uint32_t step, std::byte* messages, int left_out) override;
  void await_sent(uint32_t) override {}
  void compute(const std::function<void()>& work) override { work(); }
  void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) override;
  void await_received(uint32_t) override {}

  // As it is.
  size_t deposit_offset(const Steps& group, uint32_t step, size_t bucket) const override;
  int64_t elements_in_deposit(int64_t bytes, const BucketReduction& reduction) const override;
  void deposit(uint32_t step, std::span<std::byte* const> groups) override;
  std::vector<BucketTensor> sums_of(std::vector<BucketTensor> slice) override { return slice; }
  void sum(Bucket& bucket, Range range, Data data, std::byte* message) override { bucket.pack_sum(range, data, message); }

 private:
  CollectiveContext& context_;
  std::span<const Steps> groups_;
};

}  // namespace hvd
