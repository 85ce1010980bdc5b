// Where the tensors of a reduction are, as seen from its messages, which are in memory of the host: the CPU's tensors are read
// and written by the calling thread (cpu_tensors.h), those of a GPU by the GPU, which copies messages to and from there
// (device/gpu_tensors.h). Patterns are written against this, and have one text for both.
//
// A reduction has one or several groups of buckets, each a Steps, whose steps go together. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/steps.h"
#include "transport/window.h"

namespace hvd {

class TensorMemory {
 public:
  using Data = std::span<const std::byte* const>;  // by local rank; null: this rank's, not deposited

  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  virtual ~TensorMemory() = default;

  // Whether something else than this thread reads and writes the tensors: all that they contribute is in messages, this
  // rank's for itself too, and results are only ever collected.
  virtual bool is_elsewhere() const = 0;
  // Turns between the start of a copy and when it is awaited.
  uint32_t lag() const { return is_elsewhere() ? 1 : 0; }
  // Has a window's memory ready for copies: before anything is written there.
  virtual void open(Window& window, int ranks) = 0;
  // Memory for messages, once in an operation.
  virtual std::shared_ptr<std::byte[]> memory(size_t bytes) = 0;

  // Before the first step. The groups outlive it.
  virtual void begin(std::span<const Steps> groups) = 0;
  // Writes the contributions of the first group, one for each bucket and as Steps says; that of bucket `left_out` may stay.
  virtual void send(uint32_t step, std::byte* messages, int left_out) = 0;
  virtual void await_sent(uint32_t step) = 0;
  // Does what this thread computes for others than itself.
  virtual void compute(const std::function<void()>& work) = 0;
  // Takes results of a group, those of parties `first` to `last`, out of their messages, which lie as Steps says from that of
  // `first` on. The groups of a step come in order, and so do parties. Results of party `done` are where they belong.
  virtual void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) = 0;
  virtual void await_received(uint32_t step) = 0;

  // For ranks of a host that add up before anything is sent. A deposit is of one rank, and has an address for each group, null
  // for what is not deposited. Where a bucket's data lies among those of its group, and for the number of buckets, where
  // they end; and about how many elements of a bucket take so many bytes.
  virtual size_t deposit_offset(const Steps& group, uint32_t step, size_t bucket) const = 0;
  virtual int64_t elements_in_deposit(int64_t bytes, const BucketReduction& reduction) const = 0;
  virtual void deposit(uint32_t step, std::span<std::byte* const> groups) = 0;
  // The tensors of what a host sums, made of those of the slice that this rank carries; and the message of that sum over the
  // host's ranks, each of whose data begins with the range.
  virtual std::vector<BucketTensor> sums_of(std::vector<BucketTensor> slice) = 0;
  virtual void sum(Bucket& bucket, Range range, Data data, std::byte* message) = 0;
};

}  // namespace hvd
