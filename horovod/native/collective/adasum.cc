#include <algorithm>
#include <vector>

#include "collective/allreduce.h"

namespace hvd {
namespace {

// Scalar products of one tensor.
struct Products {
  double ab = 0, aa = 0, bb = 0;
};

template <typename T>
class Adasum {
 public:
  Adasum(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction)
      : context_(context), tensors_(tensors), reduction_(reduction), starts_{0} {
    for (const BucketTensor& tensor : tensors) starts_.push_back(starts_.back() + tensor.count);
    const auto bytes = static_cast<size_t>(starts_.back()) * sizeof(T);
    mine_ = reinterpret_cast<T*>(context.send.at_least(bytes));
    theirs_ = reinterpret_cast<T*>(context.receive.at_least(bytes));
  }

  void run() {
    const ReduceKernels& kernels = reduce_kernels(context_.simd);
    context_.enter(Phase::kPack);
    for (size_t t = 0; t < tensors_.size(); ++t) {
      require_memory(tensors_[t]);
      kernels.load(reduction_.dtype, tensors_[t].source, tensors_[t].count, reduction_.prescale, mine_ + starts_[t]);
    }
    const int size = context_.group.size();
    std::vector<Range> given;  // level by level: the half that the partner keeps
    Range segment{0, starts_.back()};
    for (int distance = 1; distance < size; distance *= 2) segment = halve(segment, distance, &given);
    for (int distance = size / 2; distance >= 1; distance /= 2) {
      swap_segments(distance, &segment, given.back());
      given.pop_back();
    }
    context_.enter(Phase::kUnpack);
    for (size_t t = 0; t < tensors_.size(); ++t) {
      require_memory(tensors_[t]);
      kernels.store(reduction_.dtype, mine_ + starts_[t], tensors_[t].count, reduction_.scale, tensors_[t].destination);
    }
  }

 private:
  static size_t bytes_of(Range range) { return static_cast<size_t>(range.count()) * sizeof(T); }

  // Both partners hold the segment. Each keeps one half, and combines it with the partner's values.
  Range halve(Range segment, int distance, std::vector<Range>* given) {
    const int rank = context_.group.rank(), partner = rank ^ distance;
    const bool is_upper = (rank & distance) != 0;
    const int64_t middle = segment.begin + segment.count() / 2;
    const Range lower{segment.begin, middle}, upper{middle, segment.end};
    const Range kept = is_upper ? upper : lower;
    given->push_back(is_upper ? lower : upper);
    context_.enter(Phase::kCommunicate);
    exchange(partner, mine_, given->back(), theirs_, kept);
    context_.enter(Phase::kReduce);
    const T* a = is_upper ? theirs_ : mine_;
    const T* b = is_upper ? mine_ : theirs_;
    combine(a, b, kept, total(products(a, b, kept), 2 * distance));
    return kept;
  }

  void swap_segments(int distance, Range* segment, Range other) {
    context_.enter(Phase::kCommunicate);
    exchange(context_.group.rank() ^ distance, mine_, *segment, mine_, other);
    *segment = {std::min(segment->begin, other.begin), std::max(segment->end, other.end)};
  }

  void exchange(int partner, const T* from, Range sent, T* to, Range received) {
    const Outgoing outgoing[] = {{partner, from + sent.begin, bytes_of(sent)}};
    const Incoming incoming[] = {{partner, to + received.begin, bytes_of(received)}};
    context_.group.exchange(outgoing, incoming);
    context_.wire_bytes += static_cast<int64_t>(bytes_of(sent));
  }

  // f(tensor, begin, end) for each tensor's part of a range.
  template <typename F>
  void for_each_tensor(Range range, F f) const {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const int64_t begin = std::max(range.begin, starts_[t]), end = std::min(range.end, starts_[t + 1]);
      if (begin < end) f(t, begin, end);
    }
  }

  std::vector<Products> products(const T* a, const T* b, Range range) const {
    std::vector<Products> all(tensors_.size());
    for_each_tensor(range, [&](size_t t, int64_t begin, int64_t end) {
      Products p;
      for (int64_t i = begin; i < end; ++i) {
        const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
        p.ab += x * y;
        p.aa += x * x;
        p.bb += y * y;
      }
      all[t] = p;
    });
    return all;
  }

  // Sums over the ranks whose segments make up the two vectors: the aligned block of `block` ranks with this rank.
  std::vector<Products> total(const std::vector<Products>& own, int block) {
    const int rank = context_.group.rank(), first = rank / block * block;
    const size_t bytes = own.size() * sizeof(Products);
    std::vector<std::vector<Products>> all(static_cast<size_t>(block), std::vector<Products>(own.size()));
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (int i = 0; i < block; ++i) {
      if (first + i == rank) continue;
      outgoing.push_back({first + i, own.data(), bytes});
      incoming.push_back({first + i, all[static_cast<size_t>(i)].data(), bytes});
    }
    context_.group.exchange(outgoing, incoming);
    context_.wire_bytes += static_cast<int64_t>(bytes) * (block - 1);
    all[static_cast<size_t>(rank - first)] = own;
    std::vector<Products> sums(own.size());
    for (const std::vector<Products>& one : all) {  // in rank order: the same bits on all ranks
      for (size_t t = 0; t < sums.size(); ++t) {
        sums[t].ab += one[t].ab;
        sums[t].aa += one[t].aa;
        sums[t].bb += one[t].bb;
      }
    }
    return sums;
  }

  void combine(const T* a, const T* b, Range range, const std::vector<Products>& all) {
    for_each_tensor(range, [&](size_t t, int64_t begin, int64_t end) {
      const Products& p = all[t];
      // A zero vector has no component in common with another.
      const T of_a = static_cast<T>(p.aa == 0 ? 1.0 : 1.0 - p.ab / (2 * p.aa));
      const T of_b = static_cast<T>(p.bb == 0 ? 1.0 : 1.0 - p.ab / (2 * p.bb));
      for (int64_t i = begin; i < end; ++i) mine_[i] = of_a * a[i] + of_b * b[i];
    });
  }

  CollectiveContext& context_;
  const std::span<const BucketTensor> tensors_;
  const BucketReduction& reduction_;
  std::vector<int64_t> starts_;  // the position of each tensor in the buffers, then the end
  T* mine_;
  T* theirs_;
};

}  // namespace

void adasum(CollectiveContext& context, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  if (reduction.dtype == DType::kFloat64) {
    Adasum<double>(context, tensors, reduction).run();
  } else {
    Adasum<float>(context, tensors, reduction).run();
  }
}

}  // namespace hvd
