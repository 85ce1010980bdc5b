// Allreduce over several hosts: through the window of each host, and by messages between them.
//
// The first ranks of every host are carriers, as many as the smallest host has ranks; carrier c has slice c of every tensor.
// In each step
//
//   deposit     every rank puts its data of the other carriers' slices into its area of the window, as it is
//   contribute  a carrier sums its slice over the host, in the order of local ranks, and starts to send the sum, encoded if
//               there is a codec, to the carriers of its slice on the other hosts
//   reduce      (scatter) a carrier sums its host's part of the slice over the hosts, in their order, and sends the result
//   deliver     a carrier says that what the others have sent it, straight into its area, has arrived
//   collect     every rank takes all slices out of the carriers' areas
//
// So each byte crosses a host's link as often as if the host were one rank, and what crosses it is encoded once per host.
// An area has slots that steps use in turn:
//
//   area := deposit[kDeposits] landing[kLandings]
//   deposit := data of each other carrier's slice;  landing := the messages of the own slice, see steps.h
#include <algorithm>
#include <memory>
#include <vector>

#include "base/alignment.h"
#include "collective/allreduce.h"
#include "collective/crossing.h"
#include "collective/slices.h"

namespace hvd {
namespace {

constexpr int kDeposited = 0, kTaken = 1, kDelivered = 2, kCollected = 3;  // counters of the window
// Powers of two, so that slots go on in turn when the count of steps begins anew at 2^32.
constexpr uint32_t kDeposits = 4;
constexpr uint32_t kLandings = 16;
static_assert(kLandings >= Crossing::kLag + 3);

// Where this rank is, and who else carries its slice.
struct Place {
  explicit Place(const RankGroup& group) {
    for (const std::vector<int>& ranks : group.hosts()) {
      const auto found = std::find(ranks.begin(), ranks.end(), group.rank());
      if (found != ranks.end()) {
        host = static_cast<int>(&ranks - group.hosts().data());
        local_rank = static_cast<int>(found - ranks.begin());
        local_size = static_cast<int>(ranks.size());
      }
    }
    hosts = static_cast<int>(group.hosts().size());
    carriers = carriers_of(group.hosts());
    if (!carries()) return;
    for (const std::vector<int>& ranks : group.hosts()) parties.push_back(ranks[static_cast<size_t>(local_rank)]);
  }
  bool carries() const { return local_rank < carriers; }

  int host = 0, local_rank = 0, local_size = 1, hosts = 1, carriers = 1;
  std::vector<int> parties;  // carriers of this rank's slice, by host
};

class HierarchicalAllreduce {
 public:
  HierarchicalAllreduce(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        bool gather, TensorMemory& memory)
      : context_(context),
        memory_(memory),
        place_(context.group),
        window_(*context.group.host_window()),
        deposit_bytes_(window_.area_bytes() / 2 / kDeposits / kAlign * kAlign),
        landing_bytes_(window_.area_bytes() / 2 / kLandings / kAlign * kAlign),
        base_(window_.steps),
        gather_(gather),
        over_ranks_(reduction) {
    const int64_t elements = elements_per_bucket(reduction);
    BucketReduction over_hosts = reduction;  // of what a host has summed
    over_hosts.prescale = 1.0;
    (scales_sums_of_hosts(tensors, reduction) ? over_hosts : over_ranks_).scale = {};
    for (int slice = 0; slice < place_.carriers; ++slice) {
      std::vector<BucketTensor> part = slice_of(tensors, reduction, slice, place_.carriers);
      const bool is_own = slice == place_.local_rank;
      for (BucketTensor& tensor : part) {
        if (!is_own) tensor.feedback = nullptr;  // its carrier's concern
      }
      slices_.emplace_back(
          slices_of(part, over_hosts, gather ? 1 : place_.hosts, gather ? kNoPart : place_.host, claims_of(memory)),
          place_.hosts, gather, elements);
      steps_ = std::max(steps_, slices_.back().count());
    }
  }

  // The same answer on every rank.
  bool fits() const {
    for (const Steps& slice : slices_) {
      if (slice.most_bytes() > landing_bytes_) return false;
    }
    for (uint32_t step = 0; step < steps_; ++step) {
      if (deposit_offset(step, place_.carriers, -1) > deposit_bytes_) return false;
    }
    return true;
  }

  int64_t run() {
    memory_.open(window_, place_.local_size);
    memory_.begin(slices_);
    if (place_.carries()) memory_.begin_sums(own_group(), over_ranks_);
    const uint32_t lag = memory_.lag(), deposited = lag;
    std::vector<PipelineStage> stages = {{0, [this](uint32_t step) { deposit(step); }},
                                         {deposited, [this](uint32_t step) { end_deposit(step); }}};
    constexpr uint32_t kLag = Crossing::kLag;
    uint32_t arrived = deposited + 1 + kLag;
    if (place_.carries()) {
      crossing_ = std::make_unique<Crossing>(
          context_, memory_, own(), place_.parties, place_.host,
          Crossing::Options{.pack = [this](uint32_t step, size_t bucket, std::byte* message) { pack(step, bucket, message); },
                            .landing = [this](uint32_t step) { return landing(place_.local_rank, step); },
                            .group = own_group()});
      stages.push_back({deposited + 1, [this](uint32_t step) { contribute(step); }});
      if (!gather_) stages.push_back({deposited + 1 + kLag, [this](uint32_t step) { reduce(step); }});
    }
    if (!gather_) arrived += kLag;
    if (place_.carries()) stages.push_back({arrived, [this](uint32_t step) { deliver(step); }});
    stages.push_back({arrived + 1, [this](uint32_t step) { collect(step); }});
    stages.push_back({arrived + 1 + lag, [this](uint32_t step) { end_collect(step); }});
    run_pipeline(steps_, stages);
    window_.steps += steps_;
    return memory_.saturated();
  }

 private:
  size_t own_group() const { return static_cast<size_t>(place_.local_rank); }
  const Steps& own() const { return slices_[own_group()]; }

  // Of a step: as many as fit the slots, but no larger messages than are good for the network.
  int64_t elements_per_bucket(const BucketReduction& reduction) const {
    const int64_t buckets = gather_ ? 1 : place_.hosts;
    const int64_t by_deposit =
        memory_.elements_in_deposit(static_cast<int64_t>(deposit_bytes_) / (place_.carriers * buckets), reduction);
    const int64_t by_landing = elements_of(static_cast<int64_t>(landing_bytes_) / place_.hosts, reduction);
    const int64_t by_network = elements_of(message_bytes_among(place_.hosts), reduction);
    // Of the slots an eighth is left for the alignment of messages and for what blocks add to a range.
    return std::max<int64_t>(1, std::min(std::min(by_deposit, by_landing) * 7 / 8, by_network));
  }

  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value once the step is behind it

  // Of the host's first `count` ranks.
  void await(int count, int counter, uint32_t value) {
    context_.enter(Phase::kCommunicate);
    for (int r = 0; r < count; ++r) {
      if (r != place_.local_rank) window_.await(r, counter, value);
    }
  }

  std::byte* landing(int carrier, uint32_t step) const {
    return window_.area(carrier) + kDeposits * deposit_bytes_ + (base_ + step) % kLandings * landing_bytes_;
  }

  // Whether a rank deposits its data of a slice.
  bool is_deposited(int slice, int rank) const { return slice != rank || memory_.is_elsewhere(); }
  // Where the data of a slice is in the deposits of a rank.
  size_t deposit_offset(uint32_t step, int slice, int rank) const {
    size_t offset = 0;
    for (int before = 0; before < slice; ++before) {
      const Steps& of = slices_[static_cast<size_t>(before)];
      if (is_deposited(before, rank)) offset += aligned(memory_.deposit_offset(of, step, of.buckets()));
    }
    return offset;
  }
  std::byte* deposit(int rank, uint32_t step, int slice) const {
    return window_.area(rank) + (base_ + step) % kDeposits * deposit_bytes_ + deposit_offset(step, slice, rank);
  }

  void deposit(uint32_t step) {
    await(place_.carriers, kTaken, target(step) - kDeposits);  // they have done with the slot's previous step
    context_.enter(Phase::kPack);
    std::vector<std::byte*> data;
    for (int slice = 0; slice < place_.carriers; ++slice) {
      data.push_back(is_deposited(slice, place_.local_rank) ? deposit(place_.local_rank, step, slice) : nullptr);
    }
    memory_.deposit(step, data);
  }

  void end_deposit(uint32_t step) {
    memory_.await_sent(step);
    window_.advance(kDeposited);
  }

  void contribute(uint32_t step) {
    await(place_.local_size, kDeposited, target(step));
    if (gather_) await_landing(step);
    crossing_->contribute(step);
    window_.advance(kTaken);
  }

  void pack(uint32_t step, size_t bucket, std::byte* message) {
    const size_t offset = memory_.deposit_offset(own(), step, bucket);
    std::vector<const std::byte*> data;
    for (int r = 0; r < place_.local_size; ++r) {
      const bool is_there = is_deposited(place_.local_rank, r);
      data.push_back(is_there ? deposit(r, step, place_.local_rank) + offset : nullptr);
    }
    memory_.sum(step, bucket, data, message);
  }

  // Everybody has left the slot's previous step.
  void await_landing(uint32_t step) { await(place_.local_size, kCollected, target(step) - kLandings); }

  void reduce(uint32_t step) {
    await_landing(step);
    crossing_->reduce(step);
  }

  void deliver(uint32_t step) {
    crossing_->arrive(step);
    window_.advance(kDelivered);
  }

  void collect(uint32_t step) {
    for (int slice = 0; slice < place_.carriers; ++slice) {
      const bool is_own = slice == place_.local_rank;
      context_.enter(Phase::kCommunicate);
      if (!is_own) window_.await(slice, kDelivered, target(step));
      context_.enter(gather_ ? Phase::kReduce : Phase::kUnpack);
      memory_.receive(step, static_cast<size_t>(slice), 0, place_.hosts - 1, landing(slice, step),
                      is_own ? crossing_->done() : Steps::kNobody);
      context_.group.progress();
    }
  }

  void end_collect(uint32_t step) {
    memory_.await_received(step);
    window_.advance(kCollected);
  }

  CollectiveContext& context_;
  TensorMemory& memory_;
  const Place place_;
  Window& window_;
  const size_t deposit_bytes_, landing_bytes_;  // of a slot
  const uint32_t base_;
  const bool gather_;
  BucketReduction over_ranks_;          // of what the ranks of a host sum
  std::vector<Steps> slices_;           // by carrier: buckets over the hosts
  uint32_t steps_ = 0;                  // of the longest slice
  std::unique_ptr<Crossing> crossing_;  // of the own slice
};

}  // namespace

bool scales_sums_of_hosts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  if (reduction.op != ReduceOp::kSum) return false;
  if (reduction.codec == nullptr) return reduction.dtype == DType::kFloat16;
  const bool has_scales = reduction.codec->block() > 1;
  return !has_scales &&
         std::all_of(tensors.begin(), tensors.end(), [](const BucketTensor& t) { return t.feedback == nullptr; });
}

int64_t allreduce_by_hierarchy(CollectiveContext& context, std::span<const BucketTensor> tensors,
                               const BucketReduction& reduction, bool gather, TensorMemory& memory) {
  if (count_of(tensors) == 0) return 0;
  HierarchicalAllreduce allreduce(context, tensors, reduction, gather, memory);
  // With very many hosts a step is too large whatever is done.
  if (!allreduce.fits()) return allreduce_by_exchange(context, tensors, reduction, gather, memory);
  return allreduce.run();
}

}  // namespace hvd
