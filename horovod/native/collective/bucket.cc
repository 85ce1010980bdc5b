#include "collective/bucket.h"

#include <algorithm>
#include <cstring>

namespace hvd {

Bucket::Bucket(const Layout& layout, const BucketReduction& reduction, SimdLevel level, Tiles& tiles)
    : layout_(layout),
      reduction_(reduction),
      reduce_(reduce_kernels(level)),
      convert_(*codec_kernels(level).convert),
      tiles_(tiles) {}

// Calls f(tensor, offset in the tensor, count) for every run of a range, in message order.
template <typename F>
void Bucket::for_each_run(Range range, F f) const {
  layout_.for_each_piece(range, [&](const BucketTensor& tensor, int64_t begin, int64_t count) {
    for (int64_t at = 0; at < count; at += kRun) f(tensor, begin + at, std::min(kRun, count - at));
  });
}

const std::byte* Bucket::source_at(const BucketTensor& tensor, int64_t offset) const {
  require_memory(tensor);
  return static_cast<const std::byte*>(tensor.source) + offset * static_cast<int64_t>(size_of(reduction_.dtype));
}

std::byte* Bucket::destination_at(const BucketTensor& tensor, int64_t offset) const {
  require_memory(tensor);
  return static_cast<std::byte*>(tensor.destination) + offset * static_cast<int64_t>(size_of(reduction_.dtype));
}

// Encodes x * prescale + residual, and keeps the loss if there is a residual. x may lie in the tiles.
void Bucket::encode(const float* x, int64_t count, double prescale, Draw draw, const ClaimedResiduals& residual,
                    std::byte* run) {
  const Codec& codec = *reduction_.codec;
  auto* bytes = reinterpret_cast<uint8_t*>(run);
  if (residual.values == nullptr) {
    saturated_ += codec.encode(x, count, static_cast<float>(prescale), draw, bytes);
    return;
  }
  float* wanted = tiles_.floats;
  auto* got = reinterpret_cast<float*>(tiles_.exact);
  reduce_.compensate(x, count, static_cast<float>(prescale), residual.values, wanted);
  saturated_ += codec.encode(wanted, count, 1.0f, draw, bytes);
  codec.decode(bytes, count, got);
  const uint32_t largest = reduce_.keep_lost(wanted, got, count, residual.bound->limit(), residual.values);
  residual.bound->largest = std::max(residual.bound->largest, largest);
}

void Bucket::encode_source(const BucketTensor& tensor, int64_t offset, int64_t count, std::byte* run) {
  const std::byte* source = source_at(tensor, offset);
  const auto* floats = reinterpret_cast<const float*>(source);
  if (reduction_.dtype != DType::kFloat32) {
    convert_.to_float(reduction_.dtype, source, count, tiles_.floats);
    floats = tiles_.floats;
  }
  encode(floats, count, reduction_.prescale, {tensor.sent_key, tensor.offset + offset}, tensor.sent.from(offset), run);
}

// Encodes the result that reduce_encoded() left in the tiles.
void Bucket::encode_result(const BucketTensor& tensor, int64_t offset, int64_t count, std::byte* run) {
  encode(tiles_.floats, count, 1.0, {tensor.result_key, tensor.offset + offset}, tensor.result.from(offset), run);
}

void Bucket::pack(Range range, std::byte* message) {
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    if (reduction_.codec) {
      encode_source(tensor, offset, count, message);
    } else {
      std::memcpy(message, source_at(tensor, offset), static_cast<size_t>(layout_.piece_bytes(count)));
    }
    message += layout_.piece_bytes(count);
  });
}

// The sum of the contributions, in the accumulator type. A null run stands for `own`.
void Bucket::accumulate(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, void* sum) const {
  const DType dtype = reduction_.dtype;
  auto contribution = [&](size_t rank) { return runs[rank] ? runs[rank] : own; };
  size_t next = 1;
  if (accumulator_size(dtype) == size_of(dtype) && reduction_.prescale == 1.0 && runs.size() > 1) {
    reduce_.combine_two(dtype, reduction_.op, contribution(0), contribution(1), count, sum);
    next = 2;
  } else {
    reduce_.load(dtype, contribution(0), count, reduction_.prescale, sum);
  }
  for (; next < runs.size(); ++next) {
    reduce_.combine(dtype, reduction_.op, contribution(next), count, reduction_.prescale, sum);
  }
}

// The sum is made in `out` if the accumulator type is the dtype.
void Bucket::reduce_exact(std::span<const std::byte* const> runs, const std::byte* own, int64_t count, std::byte* out) const {
  const bool in_place = accumulator_size(reduction_.dtype) == size_of(reduction_.dtype);
  alignas(64) float tile[kRun];
  void* sum = in_place ? static_cast<void*>(out) : tile;
  accumulate(runs, own, count, sum);
  if (!in_place || !reduction_.scale.is_one()) reduce_.store(reduction_.dtype, sum, count, reduction_.scale, out);
}

void Bucket::copy(Range range, std::byte* data) const {
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    const auto bytes = static_cast<size_t>(count) * size_of(reduction_.dtype);
    std::memcpy(data, source_at(tensor, offset), bytes);
    data += bytes;
  });
}

void Bucket::encode_sum(const BucketTensor& tensor, int64_t offset, std::span<const std::byte* const> runs, int64_t count,
                        std::byte* run) {
  const bool is_wide = reduction_.dtype == DType::kFloat64;
  accumulate(runs, source_at(tensor, offset), count, is_wide ? static_cast<void*>(tiles_.exact) : tiles_.floats);
  void* sum = is_wide ? static_cast<void*>(tiles_.exact) : tiles_.floats;
  if (!reduction_.scale.is_one()) reduce_.store(is_wide ? DType::kFloat64 : DType::kFloat32, sum, count, reduction_.scale, sum);
  if (is_wide) convert_.to_float(DType::kFloat64, tiles_.exact, count, tiles_.floats);
  encode(tiles_.floats, count, 1.0, {tensor.sent_key, tensor.offset + offset}, tensor.sent.from(offset), run);
}

void Bucket::pack_sum(Range range, std::span<const std::byte* const> data, std::byte* message) {
  std::vector<const std::byte*> runs(data.begin(), data.end());
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    if (reduction_.codec) {
      encode_sum(tensor, offset, runs, count, message);
    } else {
      reduce_exact(runs, source_at(tensor, offset), count, message);
    }
    for (const std::byte*& run : runs) {
      if (run) run += static_cast<size_t>(count) * size_of(reduction_.dtype);
    }
    message += layout_.piece_bytes(count);
  });
}

void Bucket::pack_sum_of_messages(Range range, std::span<const std::byte* const> messages, std::byte* message) {
  if (reduction_.codec == nullptr) return pack_sum(range, messages, message);
  std::vector<const std::byte*> runs(messages.begin(), messages.end());
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    reduce_encoded(runs, count, nullptr, true);
    encode(tiles_.floats, count, 1.0, {tensor.sent_key, tensor.offset + offset}, tensor.sent.from(offset), message);
    for (const std::byte*& run : runs) run += layout_.piece_bytes(count);
    message += layout_.piece_bytes(count);
  });
}

// Sums decoded contributions in float32, or in float64 for float64 tensors. With `to_tiles` the result is also left in the
// tiles as float32, to be encoded.
void Bucket::reduce_encoded(std::span<const std::byte* const> runs, int64_t count, std::byte* destination, bool to_tiles) {
  const Codec& codec = *reduction_.codec;
  auto bytes_of = [&](size_t rank) { return reinterpret_cast<const uint8_t*>(runs[rank]); };
  if (reduction_.dtype == DType::kFloat64) {
    alignas(64) double sum[kRun];
    for (size_t rank = 0; rank < runs.size(); ++rank) {
      codec.decode(bytes_of(rank), count, tiles_.floats);
      if (rank == 0)
        std::copy_n(tiles_.floats, count, sum);
      else
        std::transform(tiles_.floats, tiles_.floats + count, sum, sum, [](float x, double s) { return s + double{x}; });
    }
    reduce_.store(DType::kFloat64, sum, count, reduction_.scale, sum);
    if (destination) std::memcpy(destination, sum, static_cast<size_t>(count) * sizeof(double));
    if (to_tiles) convert_.to_float(DType::kFloat64, sum, count, tiles_.floats);
  } else {
    const bool direct = reduction_.dtype == DType::kFloat32 && destination != nullptr;
    float* sum = direct ? reinterpret_cast<float*>(destination) : tiles_.floats;
    if (runs.size() == 2) {
      const auto factor = static_cast<float>(reduction_.scale.factor / reduction_.scale.divisor);
      codec.decode_two({bytes_of(0), bytes_of(1)}, count, factor, sum);
    } else {
      codec.decode(bytes_of(0), count, sum);
      for (size_t rank = 1; rank < runs.size(); ++rank) codec.decode_add(bytes_of(rank), count, sum);
      if (!reduction_.scale.is_one()) reduce_.store(DType::kFloat32, sum, count, reduction_.scale, sum);
    }
    if (destination && !direct) convert_.from_float(reduction_.dtype, sum, count, destination);
    if (to_tiles && direct) std::copy_n(sum, count, tiles_.floats);
  }
}

void Bucket::reduce(Range range, std::span<const std::byte* const> messages, bool to_destination, std::byte* result) {
  std::vector<const std::byte*> runs(messages.begin(), messages.end());
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    const std::byte* source = source_at(tensor, offset);
    std::byte* destination = to_destination ? destination_at(tensor, offset) : nullptr;
    if (reduction_.codec) {
      reduce_encoded(runs, count, destination, result != nullptr);
      if (result) encode_result(tensor, offset, count, result);
    } else {
      // The sum must not overwrite this rank's contribution, which is still read.
      std::byte* out = result ? result : destination == source ? tiles_.exact : destination;
      reduce_exact(runs, source, count, out);
      if (destination && destination != out) std::memcpy(destination, out, static_cast<size_t>(layout_.piece_bytes(count)));
    }
    const int64_t bytes = layout_.piece_bytes(count);
    for (const std::byte*& run : runs) {
      if (run) run += bytes;
    }
    if (result) result += bytes;
  });
}

void Bucket::unpack(Range range, const std::byte* message) {
  for_each_run(range, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    std::byte* destination = destination_at(tensor, offset);
    if (reduction_.codec == nullptr) {
      std::memcpy(destination, message, static_cast<size_t>(layout_.piece_bytes(count)));
    } else if (reduction_.dtype == DType::kFloat32) {
      reduction_.codec->decode(reinterpret_cast<const uint8_t*>(message), count, reinterpret_cast<float*>(destination));
    } else {
      reduction_.codec->decode(reinterpret_cast<const uint8_t*>(message), count, tiles_.floats);
      convert_.from_float(reduction_.dtype, tiles_.floats, count, destination);
    }
    message += layout_.piece_bytes(count);
  });
}

void Bucket::reduce_alone() {
  const bool scales = reduction_.prescale != 1.0 || !reduction_.scale.is_one();
  const std::byte* const own[] = {nullptr};
  for_each_run({0, layout_.count()}, [&](const BucketTensor& tensor, int64_t offset, int64_t count) {
    const std::byte* source = source_at(tensor, offset);
    std::byte* destination = destination_at(tensor, offset);
    if (scales) {
      reduce_exact(own, source, count, destination);
    } else if (source != destination) {
      std::memcpy(destination, source, static_cast<size_t>(count) * size_of(reduction_.dtype));
    }
  });
}

BucketsOf::BucketsOf(const Steps& group, const BucketReduction& reduction, const CollectiveContext& context) : group_(group) {
  buckets_.reserve(group.buckets());
  for (size_t i = 0; i < group.buckets(); ++i) {
    buckets_.emplace_back(group.bucket(i), reduction, context.simd, *context.tiles);
  }
}

int64_t BucketsOf::saturated() const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets_) sum += bucket.saturated();
  return sum;
}

}  // namespace hvd
