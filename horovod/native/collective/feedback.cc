#include "collective/feedback.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "device/device.h"

namespace hvd {
namespace {

int64_t nonzero(const float* begin, const float* end) { return (end - begin) - std::count(begin, end, 0.0f); }

// Padded, so that the bounds behind the values are aligned.
size_t bytes_of_values(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  return (bytes + alignof(ResidualBound) - 1) / alignof(ResidualBound) * alignof(ResidualBound);
}

// Whether a claim of [begin, begin + count) changes nothing.
bool holds(Stage stage, int64_t held_begin, int64_t held_count, int64_t begin, int64_t count) {
  const bool is_within = held_begin <= begin && begin + count <= held_begin + held_count;
  return is_within && (stage == Stage::kSent || count == held_count);
}

}  // namespace

Feedback::Feedback(int64_t count) : count_(count) {
  if (count < 0) throw InvalidArgument(Said::feedback_of_negative_size, {.others = {{"count", count}}});
}

int64_t Feedback::bytes() const {
  size_t values = 0;
  for (const Residual& residual : stages_) values += residual.values.size();
  for (const OnDevice& kept : on_device_) values += kept.memory ? static_cast<size_t>(kept.count) : 0;
  return static_cast<int64_t>(values * sizeof(float));
}

void Feedback::check(int64_t begin, int64_t count) const {
  if (begin >= 0 && count >= 0 && count <= count_ - begin) return;
  throw InvalidArgument(Said::outside_of_feedback, {.others = {{"begin", begin}, {"end", begin + count}, {"count", count_}}});
}

ResidualBound* Feedback::OnDevice::bounds() const {
  return reinterpret_cast<ResidualBound*>(memory.get() + bytes_of_values(count));
}

// The copy follows all earlier work on the GPU's stream, so it sees that work's residuals.
Feedback::Residual& Feedback::on_host(Stage stage) const {
  Residual& held = stages_[static_cast<int>(stage)];
  OnDevice& kept = on_device_[static_cast<int>(stage)];
  if (kept.memory == nullptr) return held;
  Residual residual{kept.begin, std::vector<float>(static_cast<size_t>(kept.count))};
  ResidualBound& bound = bounds_[static_cast<int>(stage)];
  kept.device->copy(kept.stream, residual.values.data(), kept.memory.get(), residual.values.size() * sizeof(float));
  kept.device->copy(kept.stream, &bound, kept.bounds() + (kept.turn + 1) % ResidualBounds::kSlots, sizeof bound);
  kept.device->synchronize(kept.device->record(kept.stream));
  held = std::move(residual);
  kept = {};
  return held;
}

ClaimedResiduals Feedback::claim_on(Device& device, Stream stream, Stage stage, int64_t begin, int64_t count,
                                    const ProgressCallback& attend) {
  check(begin, count);
  OnDevice& kept = on_device_[static_cast<int>(stage)];
  const bool is_there = kept.memory != nullptr && kept.device == &device && kept.stream == stream;
  if (!is_there || !holds(stage, kept.begin, kept.count, begin, count)) {
    if (kept.memory != nullptr) await(*kept.device, kept.device->record(kept.stream), attend);
    claim(stage, begin, count);
    Residual& held = on_host(stage);
    if (held.values.empty()) return {};
    const auto held_count = static_cast<int64_t>(held.values.size());
    const size_t bytes = bytes_of_values(held_count) + sizeof(ResidualBounds);
    OnDevice there{&device, stream, held.begin, held_count, 0, device.allocate(bytes)};
    const float usual = bounds_[static_cast<int>(stage)].usual;
    if (usual == 0.0f && nonzero(held.values.data(), held.values.data() + held_count) == 0) {
      device.fill(stream, there.memory.get(), 0, bytes);
    } else {
      const auto bounds = ResidualBounds::from(usual);
      await(device, device.record(stream), attend);  // a copy from unpinned memory blocks until the stream is done
      device.copy(stream, there.memory.get(), held.values.data(), held.values.size() * sizeof(float));
      device.copy(stream, there.bounds(), &bounds, sizeof bounds);
      device.synchronize(device.record(stream));  // `held` is freed below
    }
    kept = std::move(there);
    held = {};
  } else {
    ++kept.turn;
  }
  return {reinterpret_cast<float*>(kept.memory.get()) + (begin - kept.begin), kept.bounds(), kept.turn};
}

ResidualBound* Feedback::bound_of_sums() {
  ResidualBound& bound = bounds_[kBounds - 1];
  bound = {bound.next(), 0};
  return &bound;
}

ClaimedResiduals Feedback::claim(Stage stage, int64_t begin, int64_t count) {
  check(begin, count);
  Residual& held = on_host(stage);
  const int64_t held_end = held.begin + static_cast<int64_t>(held.values.size());
  ResidualBound& bound = bounds_[static_cast<int>(stage)];
  bound = {bound.next(), 0};
  if (holds(stage, held.begin, held_end - held.begin, begin, count)) {
    return {held.values.data() + (begin - held.begin), &bound};
  }
  Residual wanted{begin, std::vector<float>(static_cast<size_t>(count))};
  const int64_t from = std::clamp(begin, held.begin, held_end);
  const int64_t to = std::clamp(begin + count, from, held_end);
  const float* values = held.values.data();
  if (from < to) {
    std::copy(values + (from - held.begin), values + (to - held.begin), wanted.values.data() + (from - begin));
  }
  dropped_ += nonzero(values, values + (from - held.begin)) + nonzero(values + (to - held.begin), values + held.values.size());
  held = std::move(wanted);
  return {held.values.data(), &bound};
}

int64_t Feedback::take_dropped() { return std::exchange(dropped_, 0); }

void Feedback::restore(Stage stage, Residual residual) {
  const auto count = static_cast<int64_t>(residual.values.size());
  if (residual.begin < 0 || count > count_ - residual.begin) {
    throw InvalidArgument(Said::feedback_does_not_fit,
                          {.others = {{"begin", residual.begin}, {"end", residual.begin + count}, {"count", count_}}});
  }
  on_device_[static_cast<int>(stage)] = {};  // freed when the GPU is done with it
  stages_[static_cast<int>(stage)] = std::move(residual);
}

void Feedback::scale(float factor) {
  if (!std::isfinite(factor)) throw InvalidArgument(Said::feedback_factor_not_finite);
  for (const Stage stage : {Stage::kSent, Stage::kResult}) {
    for (float& value : on_host(stage).values) value *= factor;
  }
  for (ResidualBound& bound : bounds_) bound = {bound.next() * std::fabs(factor), 0};
}

std::array<float, Feedback::kBounds> Feedback::usual() const {
  for (const Stage stage : {Stage::kSent, Stage::kResult}) on_host(stage);
  std::array<float, kBounds> all;
  std::transform(std::begin(bounds_), std::end(bounds_), all.begin(), [](const ResidualBound& bound) { return bound.next(); });
  return all;
}

void Feedback::set_usual(const std::array<float, kBounds>& usual) {
  for (const Stage stage : {Stage::kSent, Stage::kResult}) on_host(stage);
  for (size_t i = 0; i < kBounds; ++i) {
    if (!(usual[i] >= 0.0f)) throw InvalidArgument(Said::usual_size_negative);
    bounds_[i] = {usual[i], 0};
  }
}

void Feedback::clear() {
  for (Residual& residual : stages_) residual = {};
  for (ResidualBound& bound : bounds_) bound = {};
  for (OnDevice& kept : on_device_) kept = {};
}

}  // namespace hvd
