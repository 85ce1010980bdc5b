// The part of a reduction that travels by messages, step by step and several steps at a time: contributions to whoever sums
// them, and results to everybody. What a network carries while a rank encodes and decodes other steps.
//
//   gather    contribute(s): to every other party -> arrive(s)
//   scatter   contribute(s): to each bucket's owner -> reduce(s): sums the own bucket, results to all -> arrive(s)
//
// Each stage starts transfers and waits for those of the stage before: Wire::lag() steps lie between two stages, so that so
// many are under way. Belongs to one thread; a party is a rank of the group.
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
  // Where the messages of a step arrive, or lie already: Steps::most_bytes(), until as many steps later as are under way.
  using ReceiveBuffer = std::function<std::byte*(uint32_t step)>;

  struct Options {
    Pack pack = {};                     // empty: of the tensors themselves
    ReceiveBuffer receive_buffer = {};  // empty: memory of its own
    bool sends_results = true;          // false: only the own bucket's owner gets a result
    size_t group = 0;                   // among those of the tensors
  };

  // `parties`: their ranks in the order of summation; `self` is the place of this rank among them.
  MessageReduction(const Means& means, const Steps& steps, std::vector<int> parties, int self, Options options);

  // Of tensors that are elsewhere: contribute() is for what has been sent.
  void send(uint32_t step);
  void contribute(uint32_t step);
  void reduce(uint32_t step);
  void arrive(uint32_t step);
  // Where the messages are that have arrived, and whose result is in the destinations already.
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
  const bool sums_in_place_;   // the own bucket's result is made in its destination
  const bool reads_in_place_;  // the own bucket's contribution is read where it is
  // A slot: what is sent, what is received, and where that is nobody else's business, what arrives. Each of these is used
  // from one stage to the next, and copied before or after that.
  const uint32_t slot_count_;
  size_t received_offset_ = 0, receive_offset_ = 0, slot_bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;
  std::vector<std::optional<Ticket>> contributed_, results_;  // nothing: nothing to wait for
};

}  // namespace hvd
