#include "collective/feedback.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "collective/device/await.h"

namespace hvd {
namespace {

int64_t nonzero(const float* begin, const float* end) {
  return (end - begin) - std::count(begin, end, 0.0f);
}

// Whether a claim of [begin, begin + count) changes nothing.
bool holds(Stage stage, int64_t held_begin, int64_t held_count, int64_t begin, int64_t count) {
  const bool is_within = held_begin <= begin && begin + count <= held_begin + held_count;
  return is_within && (stage == Stage::kSent || count == held_count);
}

}  // namespace

Feedback::Feedback(int64_t count) : count_(count) {
  if (count < 0) throw InvalidArgument("feedback of " + std::to_string(count) + " elements: count must not be negative");
}

int64_t Feedback::bytes() const {
  size_t values = 0;
  for (const Residual& residual : stages_) values += residual.values.size();
  for (const Away& away : away_) values += away.memory ? static_cast<size_t>(away.count) : 0;
  return static_cast<int64_t>(values * sizeof(float));
}

void Feedback::check(int64_t begin, int64_t count) const {
  if (begin >= 0 && count >= 0 && count <= count_ - begin) return;
  throw InvalidArgument("elements [" + std::to_string(begin) + ", " + std::to_string(begin + count) +
                        ") are not within a feedback of " + std::to_string(count_));
}

// What the GPU does with them on its stream comes first: the copy is the next there.
Feedback::Residual& Feedback::home(Stage stage) const {
  Residual& held = stages_[static_cast<int>(stage)];
  Away& away = away_[static_cast<int>(stage)];
  if (away.memory == nullptr) return held;
  Residual residual{away.begin, std::vector<float>(static_cast<size_t>(away.count))};
  away.device->copy(away.stream, residual.values.data(), away.memory.get(), residual.values.size() * sizeof(float));
  away.device->synchronize(away.device->record(away.stream));
  held = std::move(residual);
  away = {};
  return held;
}

float* Feedback::claim_on(Device& device, Stream stream, Stage stage, int64_t begin, int64_t count, const Attention& attend) {
  check(begin, count);
  Away& away = away_[static_cast<int>(stage)];
  const bool is_there = away.memory != nullptr && away.device == &device && away.stream == stream;
  if (!is_there || !holds(stage, away.begin, away.count, begin, count)) {
    if (away.memory != nullptr) await(*away.device, away.device->record(away.stream), attend);
    claim(stage, begin, count);
    Residual& held = home(stage);
    if (held.values.empty()) return nullptr;
    const size_t bytes = held.values.size() * sizeof(float);
    DeviceMemory memory = device.allocate(bytes);
    if (nonzero(held.values.data(), held.values.data() + held.values.size()) == 0) {
      device.fill(stream, memory.get(), 0, bytes);
    } else {
      await(device, device.record(stream), attend);  // to copy from memory that is not pinned waits for the stream
      device.copy(stream, memory.get(), held.values.data(), bytes);
      device.synchronize(device.record(stream));  // the values go
    }
    away = {&device, stream, held.begin, static_cast<int64_t>(held.values.size()), std::move(memory)};
    held = {};
  }
  return reinterpret_cast<float*>(away.memory.get()) + (begin - away.begin);
}

float* Feedback::claim(Stage stage, int64_t begin, int64_t count) {
  check(begin, count);
  Residual& held = home(stage);
  const int64_t held_end = held.begin + static_cast<int64_t>(held.values.size());
  if (holds(stage, held.begin, held_end - held.begin, begin, count)) return held.values.data() + (begin - held.begin);
  Residual wanted{begin, std::vector<float>(static_cast<size_t>(count))};
  const int64_t from = std::clamp(begin, held.begin, held_end);
  const int64_t to = std::clamp(begin + count, from, held_end);
  const float* values = held.values.data();
  if (from < to) {
    std::copy(values + (from - held.begin), values + (to - held.begin), wanted.values.data() + (from - begin));
  }
  dropped_ += nonzero(values, values + (from - held.begin)) + nonzero(values + (to - held.begin), values + held.values.size());
  held = std::move(wanted);
  return held.values.data();
}

int64_t Feedback::take_dropped() { return std::exchange(dropped_, 0); }

void Feedback::restore(Stage stage, Residual residual) {
  const auto count = static_cast<int64_t>(residual.values.size());
  if (residual.begin < 0 || count > count_ - residual.begin) {
    throw InvalidArgument("residuals of elements [" + std::to_string(residual.begin) + ", " +
                          std::to_string(residual.begin + count) + ") do not fit a feedback of " + std::to_string(count_));
  }
  away_[static_cast<int>(stage)] = {};  // freed when the GPU has done with it
  stages_[static_cast<int>(stage)] = std::move(residual);
}

void Feedback::scale(float factor) {
  if (!std::isfinite(factor)) throw InvalidArgument("residuals can be scaled by a finite factor only");
  for (const Stage stage : {Stage::kSent, Stage::kResult}) {
    for (float& value : home(stage).values) value *= factor;
  }
}

void Feedback::clear() {
  for (Residual& residual : stages_) residual = {};
  for (Away& away : away_) away = {};
}

}  // namespace hvd
