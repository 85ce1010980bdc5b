// Reductions whose messages the caller carries between ranks, by collectives of its own: torch's process groups, say.
// The arithmetic, slices, residuals and random numbers are those of the routes `exchange gather` and `exchange scatter`
// and of reduce-scatter, and so are the bits of the results.
//
//   gather         pack -> one message -> (everybody's, to everybody) -> reduce
//   scatter        pack -> a message for each owner -> (to it) -> reduce -> its result -> (to everybody) -> unpack
//   reducescatter  pack -> a message for each owner -> (to it) -> reduce
//
// What is packed together is in parts: buckets that differ in reduction or dtype. All that may go in steps, each with
// messages of its own, so that one step travels while others are worked on; a step has a range of every slice of every
// part, and results do not depend on how many there are. A world of one has one step and empty messages: its reduce()
// scales.
//
// Used by one thread at a time, which for every step calls pack, reduce and unpack in this order, once each; or
// InvalidArgument. Between steps there is no order. The tensors' memory and feedback belong to the caller, and are in use
// from construction to the last call. Messages may lie anywhere: those that this rank gives itself need not be moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/simd.h"
#include "collective/bucket_tensor.h"
#include "collective/carried_messages.h"

namespace hvd {

struct CarriedPart {
  BucketReduction reduction;
  std::vector<BucketTensor> tensors;  // of the reduction's dtype
};

// Where messages of one length are, in the order of slices or ranks.
using Messages = std::span<std::byte* const>;
using ArrivedMessages = std::span<const std::byte* const>;

class Carried {
 public:
  virtual ~Carried() = default;
  Carried(const Carried&) = delete;

  size_t steps() const { return steps_.count(); }
  // Of one message, in every step.
  size_t message_bytes() const { return layout_.message_bytes(); }
  size_t result_bytes() const { return place_.sends_results() ? message_bytes() : 0; }

  // As many addresses as messages, all multiples of kCarriedAlign, or InvalidArgument; where messages are empty, any.
  void pack(size_t step, Messages to);                                // one for each slice
  void reduce(size_t step, ArrivedMessages from, std::byte* result);  // one of each rank; a result where it is sent on
  void unpack(size_t step, ArrivedMessages results);                  // one of each rank; where results are sent

  virtual int64_t saturated() const = 0;  // finite values that a codec's range cut off so far

 protected:
  Carried(const CarriedPlace& place, CarriedPlan plan);

  // A part of this rank's slice in what each rank has sent.
  std::vector<const std::byte*> contributions(size_t step, ArrivedMessages from, size_t part) const;

  virtual void do_pack(size_t step, Messages to) = 0;
  virtual void do_reduce(size_t step, ArrivedMessages from, std::byte* result) = 0;
  virtual void do_unpack(size_t step, ArrivedMessages results) = 0;
  virtual void reduce_alone() = 0;

  // Constant after construction.
  const CarriedPlace place_;
  const CarriedSteps steps_;
  const CarriedLayout layout_;

 private:
  enum class Call { kPack, kReduce, kUnpack, kNone };
  void enter(size_t step, Call call);

  std::vector<Call> next_;  // by step
};

// In steps of about `step_elements` of a slice; 0: in one. Claims feedback, as slices_of() does.
std::unique_ptr<Carried> carried_allreduce(const std::vector<CarriedPart>& parts, const CarriedPlace& place,
                                           int64_t step_elements, SimdLevel level);
// In one step: of one tensor's size * k elements rank r gets the sum of the k that begin at r * k, at the destination.
std::unique_ptr<Carried> carried_reducescatter(const BucketReduction& reduction, const BucketTensor& tensor,
                                               const CarriedPlace& place, SimdLevel level);

// What carried_reducescatter() cuts the tensor into, by rank: one chunk each, or nothing of an empty one.
std::vector<std::vector<BucketTensor>> chunks_of(const BucketTensor& tensor, DType dtype, const CarriedPlace& place);

}  // namespace hvd
