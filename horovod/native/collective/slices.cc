#include "collective/slices.h"

#include <utility>

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

}  // namespace hvd
