// What allreduce over several hosts needs to know of where a rank's tensors are: it reduces what lies in the host's window.
//
// A rank's tensors are cut into one slice for each rank that carries; each slice is a Steps of buckets over the hosts.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collective/context.h"
#include "collective/crossing.h"
#include "collective/steps.h"

namespace hvd {

class HierarchyEnds {
 public:
  using Data = std::span<const std::byte* const>;  // by local rank; null: this rank's, not deposited

  virtual ~HierarchyEnds() = default;

  // The part of the window that may be used, by local rank.
  virtual std::byte* area(int local_rank) const = 0;
  virtual size_t area_bytes() const = 0;
  // Turns between the start of a copy and when it is awaited.
  virtual uint32_t lag() const = 0;
  // Whether this rank's data of the slice that it carries is deposited too, and results are only ever collected.
  virtual bool is_elsewhere() const = 0;
  // About how many elements of a bucket take so many bytes in a deposit.
  virtual int64_t elements_in(int64_t bytes, const BucketReduction& reduction) const = 0;
  // Where a bucket's data lies among those of its slice in a deposit, and for the number of buckets, where they end.
  virtual size_t offset(const Steps& slice, uint32_t step, size_t bucket) const = 0;
  // The tensors of what a host sums, made of those of the slice that this rank carries.
  virtual std::vector<BucketTensor> sums_of(std::vector<BucketTensor> slice) = 0;

  // Before the first step. The slices, by carrier, outlive it.
  virtual void begin(const std::vector<Steps>& slices) = 0;
  // Puts the data of slices into a deposit, one address for each, null for what is not deposited.
  virtual void deposit(uint32_t step, std::span<std::byte* const> slices) = 0;
  virtual void await_deposited(uint32_t step) = 0;
  // Writes the message of the sum over the host's ranks, each of whose data begins with the range.
  virtual void sum(Bucket& bucket, Range range, Data data, std::byte* message) = 0;
  // Sums over the hosts, and sends what comes of it.
  virtual void reduce(Crossing& crossing, uint32_t step) = 0;
  // Takes results of a slice out of its messages, slice by slice; those of party `done` are where they belong.
  virtual void collect(uint32_t step, size_t slice, const std::byte* messages, int done) = 0;
  virtual void await_collected(uint32_t step) = 0;
};

// Whether what hosts send each other is scaled already, rather than the sum of all. Halves end at 65504, and an average is not to
// overflow where its terms did not. Feedback goes without, as what it keeps is in the units of flat routes; it makes up for
// what saturates.
bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction);

// Nothing if a step is too large for the window whatever is done: with very many hosts. The same answer on every rank.
std::optional<int64_t> allreduce_by_hierarchy(CollectiveContext& context, std::span<const BucketTensor> tensors,
                                              const BucketReduction& reduction, bool gather, HierarchyEnds& ends);

}  // namespace hvd
