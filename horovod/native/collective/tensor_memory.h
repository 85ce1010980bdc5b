// A reduction's tensors, as seen from its messages, which are in memory of the host: the CPU's tensors are read
// and written by the calling thread (CpuTensors), those of a GPU by the GPU, which copies messages to and from there
// (device/staged_tensors.h). Patterns are written against this, and have one text for both.
//
// A reduction has one or several groups of buckets, each a Steps, whose steps go together. Belongs to one thread.
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

  // Whether something else than this thread reads and writes the tensors: all that they contribute is in messages, this
  // rank's for itself too, and results are only ever received.
  virtual bool is_elsewhere() const = 0;
  // Turns between the start of a copy and when it is awaited.
  uint32_t lag() const { return is_elsewhere() ? 1 : 0; }
  virtual ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) = 0;
  // Has a window's memory ready for copies: before anything is written there.
  virtual void open(Window& window, int ranks) = 0;
  // Memory for messages, once in an operation.
  virtual std::shared_ptr<std::byte[]> memory(size_t bytes) = 0;

  // Before the first step. The groups outlive it; `self` is this rank's place among the parties.
  virtual void begin(std::span<const Steps> groups, int self) = 0;
  // Writes contributions, one for each bucket of a group and as Steps says; that of bucket `left_out` may stay.
  virtual void send(uint32_t step, std::byte* messages, int left_out) = 0;
  virtual void await_sent(uint32_t step) = 0;
  // Sums contributions to a bucket, into the destinations, into a message, or both: as Bucket::reduce().
  virtual void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
                      std::byte* result) = 0;
  // Takes what has arrived for a group out of the messages of parties `first` to `last`, which lie as Steps says from that of
  // `first` on: contributions of all, or results, of which those of `done` are where they belong. The groups of a step come
  // in order, and so do parties.
  virtual void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) = 0;
  virtual void await_received(uint32_t step) = 0;
  // Finite values that a codec's range cut off on this CPU.
  virtual int64_t saturated() const = 0;

  // For ranks of a host that add up before anything is sent. A rank has send buffers, an address for each group, null
  // for what is not sent. Where a bucket's data lies among those of its group, and for the number of buckets, where
  // they end; and about how many elements of a bucket take so many bytes:
  // they are elements as they lie in memory, unless a class says otherwise.
  virtual size_t send_offset(const Steps& group, uint32_t step, size_t bucket) const;
  virtual int64_t elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const;
  virtual void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) = 0;
  // After begin(): this rank fills send buffers, and sums over its host the group `own`, if not nobody; `reduction` is of that
  // sum.
  virtual void begin_sends(int own, const BucketReduction& reduction) = 0;
  // The message of the sum of a bucket of that group. Data are by local rank, null for this rank's where it was not sent.
  virtual void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) = 0;
};

// For slices_of().
inline Claim claims_of(TensorMemory& memory) {
  return [&memory](Feedback& of, Stage stage, int64_t begin, int64_t count) { return memory.claim(of, stage, begin, count); };
}

// Tensors in memory of the CPU: messages are made straight out of them, and a rank reads its own in place where it can.
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
