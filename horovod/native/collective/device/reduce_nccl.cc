// Reductions that kernels sum in an order of ours, out of messages that NCCL exchanges.
#include <algorithm>
#include <numeric>

#include "collective/allreduce.h"
#include "collective/device/nccl_reduction.h"
#include "collective/slices.h"
#include "collective/steps.h"

namespace hvd {
namespace {

// Of the messages of all parties in a step: enough for a wire to be fast, and small beside what GPUs have.
constexpr int64_t kOwnStepBytes = int64_t{8} << 20;
// Of the elements that ranks of a host exchange in a step.
constexpr int64_t kStepElementBytes = int64_t{16} << 20;

std::vector<int> all_ranks(const NcclContext& nccl) {
  std::vector<int> ranks(static_cast<size_t>(nccl.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Claim claims_on(const DeviceWorkspace& workspace) {
  return [&workspace](Feedback& of, Stage stage, int64_t begin, int64_t count) {
    return of.claim_on(workspace.device(), workspace.stream(), stage, begin, count, workspace.attention());
  };
}

NcclPlace flat_place(const NcclContext& nccl) {
  NcclPlace place;
  place.locals = {nccl.rank()};
  place.parties = all_ranks(nccl);
  place.party = nccl.rank();
  place.party_count = nccl.size();
  return place;
}

NcclPlace place_among_hosts(const NcclContext& nccl) {
  const RankGroup& group = nccl.context.group;
  NcclPlace place;
  place.carriers = carriers_of(group.hosts());
  place.party_count = static_cast<int>(group.hosts().size());
  for (const std::vector<int>& ranks : group.hosts()) {
    const auto found = std::find(ranks.begin(), ranks.end(), nccl.rank());
    if (found == ranks.end()) continue;
    place.locals = ranks;
    place.local_rank = static_cast<int>(found - ranks.begin());
    place.party = static_cast<int>(&ranks - group.hosts().data());
  }
  if (!place.carries()) return place;
  for (const std::vector<int>& ranks : group.hosts()) place.parties.push_back(ranks[static_cast<size_t>(place.local_rank)]);
  return place;
}

}  // namespace

void allreduce_by_nccl_exchange(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                                const BucketReduction& reduction, bool gather) {
  const int size = nccl.size();
  std::vector<Steps> slices;
  slices.emplace_back(
      slices_of(tensors, reduction, gather ? 1 : size, gather ? kNoPart : nccl.rank(), claims_on(nccl.workspace)), size, gather,
      elements_of(kOwnStepBytes / size, reduction));
  NcclReduction(nccl, flat_place(nccl), {.gather = gather, .inside = {}, .across = reduction}, std::move(slices)).run();
}

void allreduce_by_nccl_hierarchy(const NcclContext& nccl, std::span<const BucketTensor> tensors,
                                 const BucketReduction& reduction, bool gather) {
  const NcclPlace place = place_among_hosts(nccl);
  const int hosts = place.party_count;
  BucketReduction inside = reduction, across = reduction;
  across.prescale = 1.0;
  (scales_sums_of_hosts(tensors, reduction) ? across : inside).scale = {};
  const int64_t messages = int64_t{place.carriers} * hosts;
  const auto element = static_cast<int64_t>(size_of(reduction.dtype));
  const int64_t by_elements = kStepElementBytes / element / (gather ? place.carriers : messages);
  const int64_t elements = std::clamp(by_elements / Tiles::kRun * Tiles::kRun, Tiles::kRun,
                                      std::max(Tiles::kRun, elements_of(kOwnStepBytes / messages, reduction)));
  std::vector<Steps> slices;
  for (int carrier = 0; carrier < place.carriers; ++carrier) {
    std::vector<BucketTensor> part = slice_of(tensors, reduction, carrier, place.carriers);
    if (carrier != place.local_rank) {
      for (BucketTensor& tensor : part) tensor.feedback = nullptr;  // its carrier's concern
    }
    slices.emplace_back(slices_of(part, across, gather ? 1 : hosts, gather ? kNoPart : place.party, claims_on(nccl.workspace)),
                        hosts, gather, elements);
  }
  NcclReduction(nccl, place, {.gather = gather, .is_hierarchical = true, .inside = inside, .across = across}, std::move(slices))
      .run();
}

void reducescatter_by_nccl_exchange(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                    const BucketReduction& reduction) {
  std::vector<Layout> buckets;
  for (std::vector<BucketTensor>& parts : by_rank) {
    std::erase_if(parts, [](const BucketTensor& part) { return part.count == 0; });
    buckets.emplace_back(std::move(parts), reduction);
  }
  std::vector<Steps> slices;
  slices.emplace_back(std::move(buckets), nccl.size(), false, elements_of(kOwnStepBytes / nccl.size(), reduction));
  NcclReduction(nccl, flat_place(nccl), {.delivers_results = false, .inside = {}, .across = reduction}, std::move(slices))
      .run();
}

}  // namespace hvd
