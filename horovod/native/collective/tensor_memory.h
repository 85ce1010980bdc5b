// Access to the tensors of a reduction. Messages are in the same memory as the tensors (CpuTensors, device/gpu_tensors.cc), or a
// GPU's tensors are "elsewhere" and their messages in host memory (device/staged_tensors.cc). Patterns use this interface.
//
// A reduction has one or more groups of buckets. Each group is a Steps, and their steps run together. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/bucket.h"
#include "collective/context.h"
#include "collective/steps.h"
#include "transport/window.h"

namespace hvd {

class TensorMemory {
 public:
  using Messages = std::span<const std::byte* const>;

  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  virtual ~TensorMemory() = default;

  // Whether the tensors are elsewhere. Then every contribution, including this rank's, is in a message, and every result is
  // received as one.
  virtual bool is_elsewhere() const = 0;
  // Turns between the start of a copy and the wait for it.
  uint32_t lag() const { return is_elsewhere() ? 1 : 0; }
  virtual ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) = 0;
  // Prepares a window's memory for copies. Call it before any write to the window.
  virtual void open(Window& window, int ranks) = 0;
  // Memory for messages. Call it once in an operation.
  virtual std::shared_ptr<std::byte[]> memory(size_t bytes) = 0;

  // Call it before the first step. The groups must outlive the operation. `self` is this rank's index among the parties.
  virtual void begin(std::span<const Steps> groups, int self) = 0;
  // Writes the contributions to all buckets of the first group, at the offsets of Steps. Bucket `left_out` may be skipped.
  virtual void send(uint32_t step, std::byte* messages, int left_out) = 0;
  virtual void await_sent(uint32_t step) = 0;
  // Sums contributions to a bucket into the destinations, a message, or both: see Bucket::reduce().
  virtual void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
                      std::byte* result) = 0;
  // Takes the messages of parties `first` to `last` of a group; the message of `first` is at `messages`. With gather they are
  // contributions of all parties, otherwise results. The result of party `done` is in place already. Call it for the groups of
  // a step, and for the parties, in order.
  virtual void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) = 0;
  virtual void await_received(uint32_t step) = 0;
  // Call it after the last step, if GPUs have work of the operation that this memory must still enqueue.
  virtual void finish() {}
  // Finite values that a codec's range cut off on this CPU.
  virtual int64_t saturated() const = 0;

  // For hierarchical routes, whose hosts add up first. A rank has a send buffer for each group, null if it sends nothing. It
  // has plain elements unless a class overrides this. send_offset(): of a bucket's data, or the end for the number of buckets.
  // elements_in_send_buffer(): about how many fit into `bytes`.
  virtual size_t send_offset(const Steps& group, uint32_t step, size_t bucket) const;
  virtual int64_t elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const;
  virtual void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) = 0;
  // After begin(): this rank fills send buffers, and sums group `own`, unless kNobody, over its host by `reduction`.
  virtual void begin_sends(int own, const BucketReduction& reduction) = 0;
  // Writes the message of a bucket's sum over the host. `data` is by local rank, null for this rank's if it was not sent.
  virtual void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) = 0;
};

// For slices_of().
inline Claim claims_of(TensorMemory& memory) {
  return [&memory](Feedback& of, Stage stage, int64_t begin, int64_t count) { return memory.claim(of, stage, begin, count); };
}

// CPU tensors: messages are written straight from them, and a rank reads its own data in place if it can.
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
  std::optional<BucketsOf> sums_;   // the group that this rank sums over its host
};

}  // namespace hvd
