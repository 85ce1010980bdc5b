// The part of a reduction that uses messages, step by step, with several steps under way: contributions go to the ranks that
// sum them, results to all. Transfers overlap with encoding and decoding of other steps.
//
//   gather    contribute(s): to every other party -> arrive(s)
//   scatter   contribute(s): to each bucket's owner -> reduce(s): sums this rank's bucket, sends the result to all -> arrive(s)
//
// Each stage starts transfers and waits for the transfers of the stage before. Wire::lag() steps lie between two stages, and
// are under way at once. A party is a rank of the group. Belongs to one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collective/allreduce.h"
#include "collective/steps.h"

namespace hvd {

class MessageReduction {
 public:
  // Writes the contribution to a bucket in a step.
  using Pack = std::function<void(uint32_t step, size_t bucket, std::byte* message)>;
  // Memory for the messages of a step: Steps::most_bytes(), valid until that step and the steps under way are done.
  using ReceiveBuffer = std::function<std::byte*(uint32_t step)>;

  struct Options {
    Pack pack = {};                     // empty: contributions come from the tensors
    ReceiveBuffer receive_buffer = {};  // empty: uses its own memory
    bool sends_results = true;          // false: only the owner of a bucket gets its result
    size_t group = 0;                   // the index of `steps` among the groups of the tensors
  };

  // `parties`: the ranks in the order of summation. `self`: this rank's index among them.
  MessageReduction(const RouteParts& parts, const Steps& steps, std::vector<int> parties, int self, Options options);

  // For tensors that are elsewhere: starts the copy of contributions, which must be complete before contribute().
  void send(uint32_t step);
  void contribute(uint32_t step);
  void reduce(uint32_t step);
  void arrive(uint32_t step);
  // receive_buffer() has the messages that arrived; done() is the party whose result is in the destinations already.
  std::byte* receive_buffer(uint32_t step) const;
  int done() const { return sums_in_place_ ? self_ : Steps::kNobody; }

 private:
  std::byte* slot(uint32_t step) const { return memory_.get() + step % slot_count_ * slot_bytes_; }
  std::byte* received(uint32_t step, int party) const;
  void pack(uint32_t step, std::byte* to);
  void finish(std::optional<Ticket>& ticket);

  CollectiveContext& context_;
  TensorMemory& tensors_;
  Wire& wire_;
  const Steps& steps_;
  const std::vector<int> parties_;
  const int self_;
  const Options options_;
  const bool sums_in_place_;   // this rank's result is made in its destination
  const bool reads_in_place_;  // this rank's contribution is read where it is
  // A slot has sent messages, then received contributions (scatter), then arriving messages unless the caller provides their
  // memory. Each part is in use from one stage to the next, and is copied before or after that.
  const uint32_t slot_count_;
  size_t received_offset_ = 0, receive_offset_ = 0, slot_bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;
  std::vector<std::optional<Ticket>> contributed_, results_;  // empty: no transfer to wait for
};

}  // namespace hvd
