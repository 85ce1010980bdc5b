#include "collective/carried.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "collective/bucket.h"
#include "collective/slices.h"

namespace hvd {
namespace {

void check_address(const std::byte* address, size_t bytes, const char* what) {
  if (bytes == 0) return;
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number != 0 && number % kCarriedAlign == 0) return;
  throw InvalidArgument(std::string(what) + " at address " + std::to_string(number) +
                        ": pass memory that begins at a multiple of " + std::to_string(kCarriedAlign) + " bytes");
}

void check_addresses(ArrivedMessages messages, size_t wanted, size_t bytes, const char* what) {
  if (bytes == 0) return;
  if (messages.size() != wanted) {
    throw InvalidArgument(std::to_string(messages.size()) + " addresses of " + what + ": pass " + std::to_string(wanted));
  }
  for (const std::byte* address : messages) check_address(address, bytes, what);
}

// By part, and in that by slice.
using PartLayouts = std::vector<std::vector<Layout>>;

CarriedPlan plan_of(const PartLayouts& parts, const CarriedPlace& place, int64_t step_elements) {
  auto layout_of = [&](size_t part, size_t slice) -> const Layout& { return parts[part][slice]; };
  return carried_plan(place, parts.size(), step_elements, layout_of);
}

class CarriedOnCpu final : public Carried {
 public:
  CarriedOnCpu(const CarriedPlace& place, PartLayouts parts, int64_t step_elements, SimdLevel level)
      : Carried(place, plan_of(parts, place, step_elements)), layouts_(std::move(parts)) {
    for (const std::vector<Layout>& slices : layouts_) {
      std::vector<Bucket>& buckets = parts_.emplace_back();
      for (const Layout& layout : slices) buckets.emplace_back(layout, level, *tiles_);
    }
  }

  int64_t saturated() const override {
    int64_t sum = 0;
    for (const auto& slices : parts_) {
      for (const Bucket& bucket : slices) sum += bucket.saturated();
    }
    return sum;
  }

 private:
  void do_pack(size_t step, Messages to) override {
    for (size_t slice = 0; slice < place_.slices(); ++slice) {
      for (size_t part = 0; part < parts_.size(); ++part) {
        parts_[part][slice].pack(range(step, part, slice), to[slice] + layout_.offset(step, slice, part));
      }
      fill_gaps(step, slice, to[slice]);
    }
  }

  void do_reduce(size_t step, ArrivedMessages from, std::byte* result) override {
    const bool sends = place_.sends_results();
    const size_t own = place_.own();
    for (size_t part = 0; part < parts_.size(); ++part) {
      parts_[part][own].reduce(range(step, part, own), contributions(step, from, part), !sends,
                               sends ? result + layout_.offset(step, own, part) : nullptr);
    }
    if (sends) fill_gaps(step, own, result);
  }

  void do_unpack(size_t step, ArrivedMessages results) override {
    for (size_t slice = 0; slice < place_.slices(); ++slice) {
      for (size_t part = 0; part < parts_.size(); ++part) {
        parts_[part][slice].unpack(range(step, part, slice), results[slice] + layout_.offset(step, slice, part));
      }
    }
  }

  void reduce_alone() override {
    for (std::vector<Bucket>& slices : parts_) slices.front().reduce_alone();
  }

  void fill_gaps(size_t step, size_t slice, std::byte* message) const {
    for (const auto& [offset, bytes] : layout_.gaps(step, slice)) std::memset(message + offset, 0, bytes);
  }

  Range range(size_t step, size_t part, size_t slice) const { return steps_.range(step, part, layouts_[part][slice]); }

  const std::unique_ptr<Tiles> tiles_ = std::make_unique<Tiles>();
  const PartLayouts layouts_;
  std::vector<std::vector<Bucket>> parts_;
};

}  // namespace

Carried::Carried(const CarriedPlace& place, CarriedPlan plan)
    : place_(place), steps_(std::move(plan.steps)), layout_(std::move(plan.layout)), next_(steps_.count(), Call::kPack) {}

void Carried::enter(size_t step, Call call) {
  if (step >= steps()) {
    throw InvalidArgument("there is no step " + std::to_string(step) + ": pass 0 to " + std::to_string(steps() - 1));
  }
  if (call != next_[step]) {
    throw InvalidArgument("pack, reduce and, where results are sent, unpack are called in this order, once each");
  }
  if (call == Call::kPack) {
    next_[step] = Call::kReduce;
  } else {
    next_[step] = call == Call::kReduce && place_.sends_results() ? Call::kUnpack : Call::kNone;
  }
}

void Carried::pack(size_t step, Messages to) {
  check_addresses({to.data(), to.size()}, place_.slices(), message_bytes(), "messages");
  enter(step, Call::kPack);
  if (message_bytes() != 0) do_pack(step, to);
}

void Carried::reduce(size_t step, ArrivedMessages from, std::byte* result) {
  check_addresses(from, static_cast<size_t>(place_.size), message_bytes(), "messages");
  check_address(result, result_bytes(), "a result");
  enter(step, Call::kReduce);
  if (place_.size == 1) return reduce_alone();
  if (message_bytes() != 0) do_reduce(step, from, result);
}

void Carried::unpack(size_t step, ArrivedMessages results) {
  check_addresses(results, place_.slices(), result_bytes(), "results");
  enter(step, Call::kUnpack);
  if (message_bytes() != 0) do_unpack(step, results);
}

std::vector<const std::byte*> Carried::contributions(size_t step, ArrivedMessages from, size_t part) const {
  std::vector<const std::byte*> all(from.begin(), from.end());
  for (const std::byte*& contribution : all) contribution += layout_.offset(step, place_.own(), part);
  return all;
}

std::unique_ptr<Carried> carried_allreduce(const std::vector<CarriedPart>& parts, const CarriedPlace& place,
                                           int64_t step_elements, SimdLevel level) {
  const int slices = static_cast<int>(place.slices()), owned = place.sends_results() ? place.rank : kNoPart;
  PartLayouts layouts;
  for (const auto& [reduction, tensors] : parts) {
    if (place.size == 1) {
      layouts.emplace_back().emplace_back(tensors, reduction);
    } else {
      layouts.push_back(slices_of(tensors, reduction, slices, owned, claim_on_cpu));
    }
  }
  return std::make_unique<CarriedOnCpu>(place, std::move(layouts), step_elements, level);
}

std::vector<std::vector<BucketTensor>> chunks_of(const BucketTensor& tensor, DType dtype, const CarriedPlace& place) {
  std::vector<std::vector<BucketTensor>> by_rank(static_cast<size_t>(place.size));
  for (int r = 0; r < place.size; ++r) {
    BucketTensor chunk = tensor;
    chunk.count = tensor.count / place.size;
    chunk.offset = r * chunk.count;
    chunk.source = static_cast<const std::byte*>(tensor.source) + chunk.offset * static_cast<int64_t>(size_of(dtype));
    if (r != place.rank) chunk.destination = nullptr;
    if (chunk.count != 0) by_rank[static_cast<size_t>(r)].push_back(chunk);
  }
  return by_rank;
}

std::unique_ptr<Carried> carried_reducescatter(const BucketReduction& reduction, const BucketTensor& tensor,
                                               const CarriedPlace& place, SimdLevel level) {
  PartLayouts layouts(1);
  for (std::vector<BucketTensor>& chunk : chunks_of(tensor, reduction.dtype, place)) {
    layouts.front().emplace_back(std::move(chunk), reduction);
  }
  return std::make_unique<CarriedOnCpu>(place, std::move(layouts), 0, level);
}

}  // namespace hvd
