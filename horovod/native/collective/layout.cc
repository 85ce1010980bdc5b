#include "collective/layout.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace hvd {

void require_memory(const BucketTensor& tensor) {
  if (!tensor.witness.holds()) {
    const std::string what = "a tensor of " + std::to_string(tensor.count) + " elements";
    throw InternalError(Said::tensor_changed, {.others = {{"what", what}}});
  }
}

int64_t count_of(std::span<const BucketTensor> tensors) {
  int64_t count = 0;
  for (const BucketTensor& tensor : tensors) count += tensor.count;
  return count;
}

int64_t granule_of(const BucketReduction& reduction) {
  constexpr int64_t kCacheLine = 64;
  return reduction.codec ? reduction.codec->block() : kCacheLine / static_cast<int64_t>(size_of(reduction.dtype));
}

int64_t run_bytes(const BucketReduction& reduction) {
  return reduction.codec ? reduction.codec->encoded_bytes(Tiles::kRun)
                         : Tiles::kRun * static_cast<int64_t>(size_of(reduction.dtype));
}

Layout::Layout(std::vector<BucketTensor> tensors, const BucketReduction& reduction)
    : tensors_(std::move(tensors)), reduction_(reduction), granule_(granule_of(reduction)), run_bytes_(run_bytes(reduction)) {
  starts_.reserve(tensors_.size() + 1);
  starts_.push_back(0);
  for (const BucketTensor& tensor : tensors_) starts_.push_back(starts_.back() + tensor.count);
}

int64_t Layout::cut(int64_t position) const {
  if (position >= count()) return count();
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  const int64_t start = *(after - 1);
  return start + (position - start) / granule_ * granule_;
}

int64_t Layout::piece_bytes(int64_t count) const {
  if (reduction_.codec == nullptr) return count * static_cast<int64_t>(size_of(reduction_.dtype));
  const int64_t rest = count % kRun;
  return count / kRun * run_bytes_ + (rest == 0 ? 0 : reduction_.codec->encoded_bytes(rest));
}

int64_t Layout::message_bytes(Range range) const {
  int64_t bytes = 0;
  for_each_piece(range, [&](const BucketTensor&, int64_t, int64_t count) { bytes += piece_bytes(count); });
  return bytes;
}

std::vector<Layout> layouts_of(std::vector<std::vector<BucketTensor>> all, const BucketReduction& reduction) {
  std::vector<Layout> layouts;
  for (std::vector<BucketTensor>& tensors : all) layouts.emplace_back(std::move(tensors), reduction);
  return layouts;
}

}  // namespace hvd
