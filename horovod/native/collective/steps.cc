#include "collective/steps.h"

#include <algorithm>

#include "base/alignment.h"

namespace hvd {

int64_t elements_of(int64_t message_bytes, const BucketReduction& reduction) {
  const int64_t run_bytes = reduction.codec ? reduction.codec->encoded_bytes(Bucket::kRun)
                                            : Bucket::kRun * static_cast<int64_t>(size_of(reduction.dtype));
  return std::max<int64_t>(1, message_bytes / run_bytes) * Bucket::kRun;
}

Steps::Steps(std::vector<std::unique_ptr<Bucket>> buckets, int parties, bool gather, int64_t elements)
    : buckets_(std::move(buckets)), parties_(parties), gather_(gather), elements_(elements) {
  for (const auto& bucket : buckets_) {
    count_ = std::max(count_, static_cast<uint32_t>((bucket->count() + elements_ - 1) / elements_));
  }
  for (uint32_t step = 0; step < count_; ++step) {
    most_bytes_ = std::max(most_bytes_, offset(step, parties_));
    for (int party = 0; party < parties_; ++party) largest_message_ = std::max(largest_message_, bytes(step, party));
  }
}

Range Steps::range(uint32_t step, size_t bucket) const {
  const Bucket& of = *buckets_[bucket];
  return {of.cut(step * elements_), of.cut((step + 1) * elements_)};
}

size_t Steps::bytes(uint32_t step, int party) const {
  const size_t bucket = gather_ ? 0 : static_cast<size_t>(party);
  return static_cast<size_t>(buckets_[bucket]->message_bytes(range(step, bucket)));
}

size_t Steps::offset(uint32_t step, int party) const {
  if (gather_) return static_cast<size_t>(party) * aligned(bytes(step, 0));
  size_t offset = 0;
  for (int before = 0; before < party; ++before) offset += aligned(bytes(step, before));
  return offset;
}

void Steps::collect(uint32_t step, const std::byte* messages, int done) const {
  if (gather_) {
    std::vector<const std::byte*> contributions;
    for (int party = 0; party < parties_; ++party) contributions.push_back(messages + offset(step, party));
    return buckets_.front()->reduce(range(step, 0), contributions, true, nullptr);
  }
  for (int party = 0; party < parties_; ++party) {
    if (party == done) continue;
    const auto i = static_cast<size_t>(party);
    buckets_[i]->unpack(range(step, i), messages + offset(step, party));
  }
}

int64_t Steps::saturated() const {
  int64_t sum = 0;
  for (const auto& bucket : buckets_) sum += bucket->saturated();
  return sum;
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
