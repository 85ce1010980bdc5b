#include "collective/message_reduction.h"

#include <utility>

#include "base/memory.h"

namespace hvd {

MessageReduction::MessageReduction(const RouteParts& parts, const Steps& steps, std::vector<int> parties, int self,
                                   Options options)
    : context_(parts.context),
      tensors_(parts.memory),
      wire_(parts.wire),
      steps_(steps),
      parties_(std::move(parties)),
      self_(self),
      options_(std::move(options)),
      sums_in_place_(!steps.gather() && steps.bucket(0).reduction().codec == nullptr && !tensors_.is_elsewhere()),
      reads_in_place_(sums_in_place_ && !options_.pack),
      slot_count_(wire_.lag() + 1 + tensors_.lag()),
      contributed_(wire_.lag() + 1),
      results_(wire_.lag() + 1) {
  if (!steps_.gather()) {
    received_offset_ = steps_.most_bytes();
    receive_offset_ = received_offset_ + parties_.size() * steps_.largest_message();
  }
  slot_bytes_ = aligned(receive_offset_ + (options_.receive_buffer || !options_.sends_results ? 0 : steps_.most_bytes()));
  memory_ = tensors_.memory(slot_count_ * slot_bytes_);
}

std::byte* MessageReduction::received(uint32_t step, int party) const {
  return slot(step) + received_offset_ + static_cast<size_t>(party) * steps_.bytes(step, self_);
}

std::byte* MessageReduction::receive_buffer(uint32_t step) const {
  return options_.receive_buffer ? options_.receive_buffer(step) : slot(step) + receive_offset_;
}

void MessageReduction::finish(std::optional<Ticket>& ticket) {
  context_.enter(Phase::kCommunicate);
  if (ticket) wire_.finish(*std::exchange(ticket, std::nullopt));
}

void MessageReduction::send(uint32_t step) { tensors_.send(step, slot(step), Steps::kNobody); }

void MessageReduction::pack(uint32_t step, std::byte* to) {
  context_.enter(Phase::kPack);
  if (!options_.pack) {
    if (!tensors_.is_elsewhere()) tensors_.send(step, to, reads_in_place_ ? self_ : Steps::kNobody);
    return;
  }
  for (size_t i = 0; i < steps_.buckets(); ++i) {
    options_.pack(step, i, to + steps_.offset(step, static_cast<int>(i)));
    wire_.progress();
  }
}

void MessageReduction::contribute(uint32_t step) {
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::byte* to = steps_.gather() ? receive_buffer(step) : slot(step);
  pack(step, steps_.gather() ? to + steps_.offset(step, self_) : to);
  const size_t own_bytes = steps_.bytes(step, self_);
  for (int party = 0; party < steps_.parties(); ++party) {
    if (party == self_) continue;
    const int rank = parties_[static_cast<size_t>(party)];
    if (steps_.gather()) {
      outgoing.push_back({rank, to + steps_.offset(step, self_), own_bytes});
      incoming.push_back({rank, to + steps_.offset(step, party), own_bytes});
    } else {
      outgoing.push_back({rank, to + steps_.offset(step, party), steps_.bytes(step, party)});
      incoming.push_back({rank, received(step, party), own_bytes});
    }
  }
  contributed_[step % contributed_.size()] = wire_.start(outgoing, incoming, memory_);
}

void MessageReduction::reduce(uint32_t step) {
  finish(contributed_[step % contributed_.size()]);
  context_.enter(Phase::kReduce);
  const auto own = static_cast<size_t>(self_);
  std::vector<const std::byte*> contributions;
  for (int party = 0; party < steps_.parties(); ++party) {
    contributions.push_back(party != self_    ? received(step, party)
                            : reads_in_place_ ? nullptr
                                              : slot(step) + steps_.offset(step, self_));
  }
  if (!options_.sends_results) return tensors_.reduce(step, options_.group, own, contributions, true, nullptr);
  std::byte* results = receive_buffer(step);
  std::byte* result = results + steps_.offset(step, self_);
  tensors_.reduce(step, options_.group, own, contributions, sums_in_place_, result);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int party = 0; party < steps_.parties(); ++party) {
    if (party == self_) continue;
    const int rank = parties_[static_cast<size_t>(party)];
    outgoing.push_back({rank, result, steps_.bytes(step, self_)});
    incoming.push_back({rank, results + steps_.offset(step, party), steps_.bytes(step, party)});
  }
  results_[step % contributed_.size()] = wire_.start(outgoing, incoming, memory_);
}

void MessageReduction::arrive(uint32_t step) {
  finish(steps_.gather() ? contributed_[step % contributed_.size()] : results_[step % contributed_.size()]);
}

}  // namespace hvd
