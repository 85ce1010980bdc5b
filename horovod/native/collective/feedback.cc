#include "collective/feedback.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace hvd {
namespace {

int64_t nonzero(const float* begin, const float* end) {
  return (end - begin) - std::count(begin, end, 0.0f);
}

}  // namespace

Feedback::Feedback(int64_t count) : count_(count) {
  if (count < 0) throw InvalidArgument("feedback of " + std::to_string(count) + " elements: count must not be negative");
}

int64_t Feedback::bytes() const {
  size_t values = 0;
  for (const Residual& residual : stages_) values += residual.values.size();
  return static_cast<int64_t>(values * sizeof(float));
}

float* Feedback::claim(Stage stage, int64_t begin, int64_t count) {
  Residual& held = stages_[static_cast<int>(stage)];
  if (begin < 0 || count < 0 || count > count_ - begin) {
    throw InvalidArgument("elements [" + std::to_string(begin) + ", " + std::to_string(begin + count) +
                          ") are not within a feedback of " + std::to_string(count_));
  }
  const int64_t held_end = held.begin + static_cast<int64_t>(held.values.size());
  const bool is_within = held.begin <= begin && begin + count <= held_end;
  if (is_within && (stage == Stage::kSent || count == held_end - held.begin)) {
    return held.values.data() + (begin - held.begin);
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
  return held.values.data();
}

int64_t Feedback::take_dropped() { return std::exchange(dropped_, 0); }

void Feedback::restore(Stage stage, Residual residual) {
  const auto count = static_cast<int64_t>(residual.values.size());
  if (residual.begin < 0 || count > count_ - residual.begin) {
    throw InvalidArgument("residuals of elements [" + std::to_string(residual.begin) + ", " +
                          std::to_string(residual.begin + count) + ") do not fit a feedback of " + std::to_string(count_));
  }
  stages_[static_cast<int>(stage)] = std::move(residual);
}

void Feedback::scale(float factor) {
  if (!std::isfinite(factor)) throw InvalidArgument("residuals can be scaled by a finite factor only");
  for (Residual& residual : stages_) {
    for (float& value : residual.values) value *= factor;
  }
}

void Feedback::clear() {
  for (Residual& residual : stages_) residual = {};
}

}  // namespace hvd
