// Allreduce over several hosts: first inside each host, then by messages between hosts.
//
// Every host has the same number of carriers, its first ranks. Carrier c has slice c of every tensor. In each step
//
//   send        every rank gives the other carriers its data of their slices, unencoded
//   contribute  a carrier sums its slice over the host in the order of local ranks, encodes the sum if there is a codec, and
//               starts to send it to the carriers of the slice on the other hosts
//   reduce      (scatter) a carrier sums its host's part of the slice over the hosts, in their order, and sends the result
//   publish     a carrier makes the messages from other hosts available to all ranks of its host
//   collect     every rank takes all slices from these messages
//
// So each byte crosses a host's link as if the host were one rank, and is encoded once per host. The host level (host_level.h)
// moves data inside a host.
#include <algorithm>
#include <memory>
#include <vector>

#include "collective/allreduce.h"
#include "collective/host_level.h"
#include "collective/message_reduction.h"
#include "collective/steps.h"

namespace hvd {
namespace {

class HierarchicalAllreduce {
 public:
  HierarchicalAllreduce(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        bool gather)
      : parts_(parts),
        memory_(parts.memory),
        level_(*parts.level),
        role_(parts.context),
        gather_(gather),
        over_ranks_(reduction) {
    // Messages are at most as large as the network handles well.
    const int64_t by_network = elements_of(parts_.wire.message_bytes(role_.hosts), reduction);
    const int64_t elements =
        std::max<int64_t>(1, std::min(level_.elements_per_bucket(role_, memory_, reduction, gather), by_network));
    BucketReduction over_hosts = reduction;  // for what a host has summed
    over_hosts.prescale = 1.0;
    (scales_sums_of_hosts(tensors, reduction) ? over_hosts : over_ranks_).scale = {};
    for (int slice = 0; slice < role_.carriers; ++slice) {
      std::vector<BucketTensor> part = slice_of(tensors, reduction, slice, role_.carriers);
      for (BucketTensor& tensor : part) {
        if (slice != role_.local_rank) tensor.feedback = nullptr;  // the slice's carrier has it
      }
      slices_.emplace_back(
          slices_of(part, over_hosts, gather ? 1 : role_.hosts, gather ? kNoPart : role_.host, claims_of(memory_)), role_.hosts,
          gather, elements);
      steps_ = std::max(steps_, slices_.back().count());
    }
  }

  // The same answer on every rank.
  bool fits() { return level_.begin({role_, memory_, slices_, steps_}); }

  int64_t run() {
    memory_.begin(slices_, role_.host);
    memory_.begin_sends(role_.carries() ? role_.local_rank : Steps::kNobody, over_ranks_);
    const uint32_t lag = memory_.lag(), between = parts_.wire.lag();
    std::vector<PipelineStage> stages = {{0, [this](uint32_t step) { send(step); }},
                                         {lag, [this](uint32_t step) { end_send(step); }}};
    uint32_t arrived = lag + 1 + between;
    if (role_.carries()) {
      by_messages_ = std::make_unique<MessageReduction>(
          parts_, own(), role_.parties, role_.host,
          MessageReduction::Options{
              .pack = [this](uint32_t step, size_t bucket, std::byte* message) { pack(step, bucket, message); },
              .receive_buffer = [this](uint32_t step) { return level_.receive_buffer(role_.local_rank, step); },
              .group = own_group()});
      stages.push_back({lag + 1, [this](uint32_t step) { contribute(step); }});
      if (!gather_) stages.push_back({lag + 1 + between, [this](uint32_t step) { reduce(step); }});
    }
    if (!gather_) arrived += between;
    stages.push_back({arrived, [this](uint32_t step) { publish(step); }});
    stages.push_back({arrived + 1, [this](uint32_t step) { collect(step); }});
    stages.push_back({arrived + 1 + lag, [this](uint32_t step) { end_collect(step); }});
    run_pipeline(steps_, stages);
    level_.end();
    return memory_.saturated();
  }

 private:
  size_t own_group() const { return static_cast<size_t>(role_.local_rank); }
  const Steps& own() const { return slices_[own_group()]; }

  void send(uint32_t step) {
    level_.await_room(step);
    parts_.context.enter(Phase::kPack);
    std::vector<std::byte*> data;
    for (int slice = 0; slice < role_.carriers; ++slice) {
      const bool stays = slice == role_.local_rank && !memory_.is_elsewhere();
      data.push_back(stays ? nullptr : level_.send_buffer(step, slice));
    }
    memory_.fill_send_buffers(step, data);
  }

  void end_send(uint32_t step) {
    memory_.await_sent(step);
    level_.sent(step);
  }

  void contribute(uint32_t step) {
    level_.await_sent(step);
    if (gather_) level_.await_receive_buffer(step);
    by_messages_->contribute(step);
    level_.taken();
  }

  void pack(uint32_t step, size_t bucket, std::byte* message) {
    const size_t offset = memory_.send_offset(own(), step, bucket);
    std::vector<const std::byte*> data;
    for (int r = 0; r < static_cast<int>(role_.locals.size()); ++r) {
      const bool stays = r == role_.local_rank && !memory_.is_elsewhere();
      data.push_back(stays ? nullptr : level_.send_buffer_of(r, step) + offset);
    }
    memory_.sum(step, bucket, data, message);
  }

  void reduce(uint32_t step) {
    level_.await_receive_buffer(step);
    by_messages_->reduce(step);
  }

  void publish(uint32_t step) {
    if (by_messages_) by_messages_->arrive(step);
    level_.publish(step);
  }

  void collect(uint32_t step) {
    for (int slice = 0; slice < role_.carriers; ++slice) {
      const bool is_own = slice == role_.local_rank;
      level_.await_published(step, slice);
      parts_.context.enter(gather_ ? Phase::kReduce : Phase::kUnpack);
      memory_.receive(step, static_cast<size_t>(slice), 0, role_.hosts - 1, level_.receive_buffer(slice, step),
                      is_own ? by_messages_->done() : Steps::kNobody);
      parts_.wire.progress();
    }
  }

  void end_collect(uint32_t step) {
    memory_.await_received(step);
    level_.collected();
  }

  const RouteParts parts_;
  TensorMemory& memory_;
  HostLevel& level_;
  const HostRole role_;
  const bool gather_;
  BucketReduction over_ranks_;                     // for the sum over a host's ranks
  std::vector<Steps> slices_;                      // by carrier: buckets over the hosts
  uint32_t steps_ = 0;                             // of the longest slice
  std::unique_ptr<MessageReduction> by_messages_;  // of this rank's slice; null if it carries none
};

}  // namespace

bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  if (reduction.op != ReduceOp::kSum) return false;
  if (reduction.codec == nullptr) return reduction.dtype == DType::kFloat16;
  const bool has_scales = reduction.codec->block() > 1;
  return !has_scales &&
         std::all_of(tensors.begin(), tensors.end(), [](const BucketTensor& t) { return t.feedback == nullptr; });
}

int64_t allreduce_by_hierarchy(const RouteParts& parts, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                               bool gather) {
  if (count_of(tensors) == 0) return 0;
  HierarchicalAllreduce allreduce(parts, tensors, reduction, gather);
  // With very many hosts even the smallest step does not fit.
  if (!allreduce.fits()) return allreduce_by_exchange(parts, tensors, reduction, gather);
  return allreduce.run();
}

}  // namespace hvd
