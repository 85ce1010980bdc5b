#include "collective/steps.h"

#include <algorithm>
#include <utility>

#include "base/memory.h"

namespace hvd {

std::vector<BucketTensor> slice_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int part,
                                   int parts) {
  const int64_t granule = granule_of(reduction);
  const auto element = static_cast<int64_t>(size_of(reduction.dtype));
  std::vector<BucketTensor> members;
  for (const BucketTensor& tensor : tensors) {
    auto boundary = [&](int k) {
      if (k == parts) return tensor.count;
      return (tensor.count / parts * k + tensor.count % parts * k / parts) / granule * granule;
    };
    const int64_t begin = boundary(part);
    BucketTensor member = tensor;
    member.source = static_cast<const std::byte*>(tensor.source) + begin * element;
    if (tensor.destination) member.destination = static_cast<std::byte*>(tensor.destination) + begin * element;
    member.count = boundary(part + 1) - begin;
    member.offset = tensor.offset + begin;
    member.sent = tensor.sent.from(begin);
    members.push_back(member);
  }
  return members;
}

ClaimedResiduals claim_on_cpu(Feedback& of, Stage stage, int64_t begin, int64_t count) { return of.claim(stage, begin, count); }

std::vector<Layout> slices_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int parts, int own,
                              const Claim& claim) {
  auto claimed_for = [&](const BucketTensor& tensor, Stage stage) -> ClaimedResiduals {
    if (tensor.feedback == nullptr || reduction.codec == nullptr) return {};
    return claim(*tensor.feedback, stage, tensor.offset, tensor.count);
  };
  std::vector<BucketTensor> claimed(tensors.begin(), tensors.end());
  for (BucketTensor& tensor : claimed) {
    if (tensor.sent.values == nullptr) tensor.sent = claimed_for(tensor, Stage::kSent);
  }
  std::vector<Layout> all;
  for (int part = 0; part < parts; ++part) {
    std::vector<BucketTensor> members = slice_of(claimed, reduction, part, parts);
    if (part == own) {
      for (BucketTensor& member : members) member.result = claimed_for(member, Stage::kResult);
    }
    std::erase_if(members, [](const BucketTensor& member) { return member.count == 0; });
    all.emplace_back(std::move(members), reduction);
  }
  return all;
}

int64_t elements_of(int64_t message_bytes, const BucketReduction& reduction) {
  return std::max<int64_t>(1, message_bytes / run_bytes(reduction)) * Layout::kRun;
}

Steps::Steps(std::vector<Layout> buckets, int parties, bool gather, int64_t elements)
    : buckets_(std::move(buckets)), parties_(parties), gather_(gather), elements_(elements) {
  for (const Layout& bucket : buckets_) {
    count_ = std::max(count_, static_cast<uint32_t>((bucket.count() + elements_ - 1) / elements_));
  }
  for (uint32_t step = 0; step < count(); ++step) {
    most_bytes_ = std::max(most_bytes_, offset(step, parties));
    for (int party = 0; party < parties; ++party) largest_message_ = std::max(largest_message_, bytes(step, party));
  }
}

int64_t Steps::elements(uint32_t step) const {
  int64_t sum = 0;
  for (size_t i = 0; i < buckets(); ++i) sum += range(step, i).count();
  return sum;
}

size_t Steps::offset(uint32_t step, int party) const {
  if (gather()) return static_cast<size_t>(party) * aligned(bytes(step, 0));
  size_t offset = 0;
  for (int before = 0; before < party; ++before) offset += aligned(bytes(step, before));
  return offset;
}

std::vector<const std::byte*> Steps::each(uint32_t step, const std::byte* messages) const {
  std::vector<const std::byte*> all;
  for (int party = 0; party < parties_; ++party) all.push_back(messages + offset(step, party));
  return all;
}

uint32_t steps_of(std::span<const Steps> groups) {
  uint32_t steps = 0;
  for (const Steps& group : groups) steps = std::max(steps, group.count());
  return steps;
}

void run_pipeline(uint32_t steps, const std::vector<PipelineStage>& stages) {
  uint32_t longest = 0;
  for (const PipelineStage& stage : stages) longest = std::max(longest, stage.lag);
  for (uint32_t turn = 0; steps != 0 && turn < steps + longest; ++turn) {
    for (const PipelineStage& stage : stages) {
      if (turn >= stage.lag && turn - stage.lag < steps) stage.run(turn - stage.lag);
    }
  }
}

}  // namespace hvd
