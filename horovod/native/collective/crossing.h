// The part of a reduction that travels by messages, step by step and several steps at a time: contributions to whoever sums
// them, and results to everybody. What a network carries while a rank encodes and decodes other steps.
//
//   gather    contribute(s): to every other party -> arrive(s)
//   scatter   contribute(s): to each bucket's owner -> reduce(s): sums the own bucket, results to all -> arrive(s)
//
// Each stage starts transfers and waits for those of the stage before: kLag steps lie between two stages, so that so many
// are under way. Belongs to one thread; a party is a rank of the group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collective/context.h"
#include "collective/steps.h"

namespace hvd {

// Of the messages that n parties exchange in a step: enough to be worth sending, few enough that much is under way.
int64_t message_bytes_among(int parties);

class Crossing {
 public:
  static constexpr uint32_t kLag = 8;

  // Writes the contribution to a range of a bucket.
  using Pack = std::function<void(size_t bucket, Range range, std::byte* message)>;
  // Where the messages of a step arrive, or lie already: Steps::most_bytes(), until kLag + 1 steps later.
  using Landing = std::function<std::byte*(uint32_t step)>;

  struct Options {
    Pack pack = {};        // empty: the data itself, the own bucket's read in place where there is no codec
    Landing landing = {};  // empty: memory of its own
    Landing packed = {};   // empty: contributions are packed here; otherwise they lie there, packed (scatter only)
    std::shared_ptr<void> keep_alive = {};  // what the two of them are part of
    bool delivers_results = true;           // false: only the own bucket's owner gets a result
    bool has_destinations = true;           // false: tensors are not of this memory, and what arrives is nobody's yet
  };

  // `parties`: their ranks in the order of summation; `self` is the place of this rank among them.
  Crossing(CollectiveContext& context, const Steps& steps, std::vector<int> parties, int self, Options options);

  void contribute(uint32_t step);
  // What reduce() begins with, for whoever measures only the rest of it.
  void await_contributions(uint32_t step);
  void reduce(uint32_t step);
  void arrive(uint32_t step);
  // Where the messages are that have arrived, and whose result is in the destinations already.
  std::byte* landing(uint32_t step) const;
  int done() const { return sums_in_place_ ? self_ : Steps::kNobody; }

 private:
  static constexpr uint32_t kSlots = kLag + 1;

  std::byte* slot(uint32_t step) const { return slots_ + step % kSlots * slot_bytes_; }
  std::byte* sent(uint32_t step) const { return options_.packed ? options_.packed(step) : slot(step); }
  std::byte* received(uint32_t step, int party) const;
  void pack(size_t bucket, Range range, std::byte* message) const;
  void finish(std::optional<Ticket>& ticket);
  Ticket start(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming);

  CollectiveContext& context_;
  const Steps& steps_;
  const std::vector<int> parties_;
  const int self_;
  const Options options_;
  const bool sums_in_place_;   // the own bucket's result is made in its destination
  const bool reads_in_place_;  // the own bucket's contribution is read where it is
  // A slot: what is sent, what is received, and where that is nobody else's business, what arrives.
  size_t received_offset_ = 0, landing_offset_ = 0, slot_bytes_ = 0;
  std::byte* slots_ = nullptr;
  std::shared_ptr<void> memory_;                                   // all that transfers read and write
  std::optional<Ticket> contributed_[kSlots], delivered_[kSlots];  // nothing: nothing to wait for
};

}  // namespace hvd
