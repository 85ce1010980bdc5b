#include "collective/device/device_bucket.h"

#include <algorithm>

#include "collective/slices.h"

namespace hvd {

DeviceBucket::DeviceBucket(std::vector<BucketTensor> tensors, const BucketReduction& reduction)
    : tensors_(std::move(tensors)),
      granule_(granule_of(reduction)),
      element_bytes_(static_cast<int64_t>(size_of(reduction.dtype))),
      run_bytes_(reduction.codec ? reduction.codec->encoded_bytes(Tiles::kRun) : Tiles::kRun * element_bytes_),
      codec_(reduction.codec) {
  starts_.reserve(tensors_.size() + 1);
  starts_.push_back(0);
  for (const BucketTensor& tensor : tensors_) starts_.push_back(starts_.back() + tensor.count);
}

int64_t DeviceBucket::cut(int64_t position) const {
  if (position >= count()) return count();
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
  const int64_t start = *(after - 1);
  return start + (position - start) / granule_ * granule_;
}

// Calls f(tensor, offset in the tensor, count) for the part of a range in each tensor, in message order.
template <typename F>
void DeviceBucket::for_each_piece(Range range, F f) const {
  if (range.count() <= 0) return;
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), range.begin);
  for (auto i = static_cast<size_t>(after - starts_.begin()) - 1; i < tensors_.size() && starts_[i] < range.end; ++i) {
    const int64_t begin = std::max(range.begin, starts_[i]) - starts_[i];
    const int64_t end = std::min(range.end, starts_[i + 1]) - starts_[i];
    if (begin < end) f(tensors_[i], begin, end - begin);
  }
}

int64_t DeviceBucket::piece_bytes(int64_t count) const {
  if (codec_ == nullptr) return count * element_bytes_;
  const int64_t rest = count % Tiles::kRun;
  return count / Tiles::kRun * run_bytes_ + (rest == 0 ? 0 : codec_->encoded_bytes(rest));
}

size_t DeviceBucket::message_bytes(Range range) const {
  int64_t bytes = 0;
  for_each_piece(range, [&](const BucketTensor&, int64_t, int64_t count) { bytes += piece_bytes(count); });
  return static_cast<size_t>(bytes);
}

void DeviceBucket::add_pieces(Range range, const Layout& layout, PieceTables& tables) const {
  int64_t message = layout.message, elements = layout.elements;
  for_each_piece(range, [&](const BucketTensor& tensor, int64_t begin, int64_t count) {
    const bool is_sent = layout.stage == Stage::kSent;
    const ClaimedResiduals residual = (is_sent ? tensor.sent : tensor.result).from(begin);
    DevicePiece piece;
    piece.source = static_cast<const std::byte*>(tensor.source) + begin * element_bytes_;
    if (tensor.destination) piece.destination = static_cast<std::byte*>(tensor.destination) + begin * element_bytes_;
    piece.residual = residual.values;
    piece.bounds = residual.bound;
    piece.turn = residual.turn;
    piece.count = count;
    piece.message_offset = message;
    piece.elements_offset = elements;
    piece.key = is_sent ? tensor.sent_key : tensor.result_key;
    piece.first_number = tensor.offset + begin;
    tables.add(piece);
    message += layout.is_of_elements ? count * element_bytes_ : piece_bytes(count);
    elements += count * element_bytes_;
  });
}

std::vector<DeviceBucket> device_slices_of(std::span<const BucketTensor> tensors, const BucketReduction& reduction, int parts,
                                           int own, Device& device, Stream stream, const Attention& attend) {
  std::vector<BucketTensor> claimed(tensors.begin(), tensors.end());
  auto claim = [&](BucketTensor& tensor, Stage stage) -> ClaimedResiduals {
    if (tensor.feedback == nullptr || reduction.codec == nullptr) return {};
    return tensor.feedback->claim_on(device, stream, stage, tensor.offset, tensor.count, attend);
  };
  for (BucketTensor& tensor : claimed) tensor.sent = claim(tensor, Stage::kSent);
  std::vector<DeviceBucket> slices;
  for (int part = 0; part < parts; ++part) {
    std::vector<BucketTensor> members = slice_of(claimed, reduction, part, parts);
    if (part == own) {
      for (BucketTensor& member : members) member.result = claim(member, Stage::kResult);
    }
    std::erase_if(members, [](const BucketTensor& member) { return member.count == 0; });
    slices.emplace_back(std::move(members), reduction);
  }
  return slices;
}

DeviceSteps::DeviceSteps(std::vector<DeviceBucket> buckets, int parties, int64_t elements)
    : buckets_(std::move(buckets)), parties_(parties), elements_(elements) {
  for (const DeviceBucket& bucket : buckets_) {
    count_ = std::max(count_, static_cast<size_t>((bucket.count() + elements_ - 1) / elements_));
  }
}

Range DeviceSteps::range(size_t step, size_t bucket) const {
  const DeviceBucket& of = buckets_[bucket];
  const auto begin = static_cast<int64_t>(step) * elements_;
  return {of.cut(begin), of.cut(begin + elements_)};
}

int64_t DeviceSteps::elements(size_t step) const {
  int64_t elements = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) elements += range(step, i).count();
  return elements;
}

size_t DeviceSteps::bytes(size_t step, int party) const {
  const size_t i = buckets_.size() == 1 ? 0 : static_cast<size_t>(party);
  return buckets_[i].message_bytes(range(step, i));
}

size_t DeviceSteps::padded_bytes(size_t step, int party) const { return padded_for_gpu(bytes(step, party)); }

}  // namespace hvd
