// Reductions of elements by NCCL's own allreduce, and what one rank alone does.
//
// A tensor that is alone is reduced where it is. Several are packed step by step, one step on the wire while kernels pack
// and unpack others.
#include <algorithm>

#include "base/error.h"
#include "collective/device/device_pieces.h"
#include "collective/device/nccl_routes.h"
#include "collective/steps.h"
#include "collective/summing.h"

namespace hvd {
namespace {

constexpr int64_t kNcclStepBytes = int64_t{32} << 20;
constexpr size_t kNcclSlots = 2;  // of steps: one is on the wire, one is packed

// A reduction in NCCL's terms.
struct Terms {
  DType dtype = DType::kFloat32;
  DeviceSum sum = DeviceSum::kSum;
  double prescale = 1.0;
  Scale scale;
};

Terms terms_of(const BucketReduction& reduction) {
  Terms terms{reduction.dtype, DeviceSum::kSum, reduction.prescale, reduction.scale};
  switch (reduction.op) {
    case ReduceOp::kMin:
      terms.sum = DeviceSum::kMin;
      break;
    case ReduceOp::kMax:
      terms.sum = DeviceSum::kMax;
      break;
    case ReduceOp::kProduct:
      terms.sum = DeviceSum::kProduct;
      break;
    default:
      break;
  }
  if (reduction.dtype == DType::kBool) {  // 0 and 1: "any" is the largest, "all" the smallest
    const bool is_any = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kMax;
    terms.dtype = DType::kUInt8;
    terms.sum = is_any ? DeviceSum::kMax : DeviceSum::kMin;
  }
  if (reduction.dtype == DType::kFloat16 && reduction.op == ReduceOp::kSum) {
    // Halves end at 65504: an average must not overflow where its terms did not.
    terms.prescale *= reduction.scale.factor / reduction.scale.divisor;
    terms.scale = {};
  }
  return terms;
}

void sum_on_wire(const NcclContext& nccl, const Terms& terms, const void* source, void* destination, int64_t count) {
  if (!nccl.communicator.serves(terms.dtype)) {
    throw InternalError("this NCCL reduces no " + std::string(name_of(terms.dtype)) +
                        "; give all ranks a newer one, or HOROVOD_GPU_TRANSPORT=host");
  }
  nccl.workspace.to_wire();
  nccl.communicator.allreduce(source, destination, count, terms.dtype, terms.sum);
  // As a ring sends it.
  const int64_t bytes = count * static_cast<int64_t>(size_of(terms.dtype));
  nccl.context.wire_bytes += 2 * bytes * (nccl.size() - 1) / nccl.size();
}

// destination = source * prescale * scale, which may be one memory.
void scale_on(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, DType dtype, double prescale,
              const Scale& scale) {
  PieceTables tables;
  BucketReduction elements;
  elements.dtype = dtype;
  const Layout bucket({tensors.begin(), tensors.end()}, elements);
  const size_t table = tables.begin();
  add_pieces(bucket, {0, bucket.count()}, {}, tables);
  tables.upload(workspace.uploads());
  if (tables[table].count == 0) return;
  const std::byte* const own[] = {nullptr};
  DeviceReduction kernel;
  kernel.dtype = dtype;
  kernel.messages = own;
  kernel.prescale = prescale;
  kernel.factor = scale.factor;
  kernel.divisor = scale.divisor;
  kernel.to_destination = true;
  workspace.kernels().reduce(workspace.stream(), tables[table], kernel);
}

// A tensor alone, where it is; of a dtype that kernels scale there, if that is needed.
void reduce_in_place(const NcclContext& nccl, const BucketTensor& tensor, DType dtype, const Terms& terms) {
  if (tensor.count == 0) return;
  const void* source = tensor.source;
  if (terms.prescale != 1.0) {
    scale_on(nccl.workspace, {&tensor, 1}, dtype, terms.prescale, {});
    source = tensor.destination;
  }
  sum_on_wire(nccl, terms, source, tensor.destination, tensor.count);
  nccl.workspace.from_wire(nccl.workspace.on_wire());
  if (terms.scale.is_one()) return;
  BucketTensor sum = tensor;
  sum.source = tensor.destination;
  scale_on(nccl.workspace, {&sum, 1}, dtype, 1.0, terms.scale);
}

// Buckets that are packed together, a range of each in every step; the results of one of them, or of all, are unpacked.
void reduce_packed(const NcclContext& nccl, const Steps& steps, size_t first_result, size_t results, DType dtype,
                   const Terms& terms) {
  struct Step {
    size_t pack_table = 0, unpack_table = 0;
    int64_t count = 0;
    Event arrived;
  };
  std::vector<Step> all(steps.count());
  PieceTables tables;
  int64_t largest = 0;
  for (uint32_t step = 0; step < steps.count(); ++step) {
    auto add = [&](bool is_result) {
      const size_t table = tables.begin();
      int64_t begin = 0;
      for (size_t i = 0; i < steps.buckets(); ++i) {
        const Range range = steps.range(step, i);
        const bool is_wanted = !is_result || (i >= first_result && i < first_result + results);
        if (is_wanted) add_pieces(steps.bucket(i), range, {.message = begin}, tables);
        begin += range.count() * static_cast<int64_t>(size_of(dtype));
      }
      return table;
    };
    all[step] = {add(false), add(true), steps.elements(step), {}};
    largest = std::max(largest, all[step].count);
  }
  DeviceWorkspace& workspace = nccl.workspace;
  const size_t slot_bytes = padded_for_gpu(static_cast<size_t>(largest) * size_of(dtype));
  std::byte* slots = workspace.scratch(std::min(kNcclSlots, all.size()) * slot_bytes);
  tables.upload(workspace.uploads());
  auto pack = [&](uint32_t step) {
    std::byte* message = slots + step % kNcclSlots * slot_bytes;
    workspace.kernels().pack(workspace.stream(), dtype, tables[all[step].pack_table], terms.prescale, message);
    sum_on_wire(nccl, terms, message, message, all[step].count);
    all[step].arrived = workspace.on_wire();
  };
  auto unpack = [&](uint32_t step) {
    workspace.from_wire(all[step].arrived);
    const PieceTable table = tables[all[step].unpack_table];
    if (table.count == 0) return;
    workspace.kernels().unpack(workspace.stream(), dtype, table, terms.scale.factor, terms.scale.divisor,
                               slots + step % kNcclSlots * slot_bytes);
  };
  run_pipeline(static_cast<uint32_t>(all.size()), {{0, pack}, {1, unpack}});
}

BucketReduction without_codec(BucketReduction reduction) {
  reduction.codec = nullptr;
  return reduction;
}

}  // namespace

void allreduce_alone(DeviceWorkspace& workspace, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  if (reduction.prescale == 1.0 && reduction.scale.is_one()) {
    const size_t element = size_of(reduction.dtype);
    for (const BucketTensor& tensor : tensors) {
      if (tensor.source == tensor.destination || tensor.count == 0) continue;
      workspace.device().copy(workspace.stream(), tensor.destination, tensor.source,
                              static_cast<size_t>(tensor.count) * element);
    }
    return;
  }
  if (kernels_sum(reduction.dtype, ReduceOp::kSum)) {
    return scale_on(workspace, tensors, reduction.dtype, reduction.prescale, reduction.scale);
  }
  PieceTables tables;
  const Layout bucket({tensors.begin(), tensors.end()}, without_codec(reduction));
  const int64_t elements = elements_of(kNcclStepBytes, without_codec(reduction));
  std::vector<size_t> steps;
  for (int64_t begin = 0; begin < bucket.count(); begin += elements) {
    steps.push_back(tables.begin());
    add_pieces(bucket, {bucket.cut(begin), bucket.cut(begin + elements)}, {}, tables);
  }
  tables.upload(workspace.uploads());
  const int64_t largest = std::min(bucket.count(), elements + granule_of(without_codec(reduction)));
  std::byte* message = workspace.scratch(static_cast<size_t>(largest) * size_of(reduction.dtype));
  for (const size_t step : steps) {
    if (tables[step].count == 0) continue;
    workspace.kernels().pack(workspace.stream(), reduction.dtype, tables[step], reduction.prescale, message);
    workspace.kernels().unpack(workspace.stream(), reduction.dtype, tables[step], reduction.scale.factor,
                               reduction.scale.divisor, message);
  }
}

void allreduce_by_nccl(const NcclContext& nccl, std::span<const BucketTensor> tensors, const BucketReduction& reduction) {
  const Terms terms = terms_of(reduction);
  const bool is_scaled = terms.prescale != 1.0 || !terms.scale.is_one();
  if (tensors.size() == 1 && (!is_scaled || kernels_sum(reduction.dtype, ReduceOp::kSum))) {
    return reduce_in_place(nccl, tensors.front(), reduction.dtype, terms);
  }
  const BucketReduction elements = without_codec(reduction);
  std::vector<Layout> buckets;
  buckets.emplace_back(std::vector<BucketTensor>(tensors.begin(), tensors.end()), elements);
  const Steps steps(std::move(buckets), 1, false, elements_of(kNcclStepBytes, elements));
  reduce_packed(nccl, steps, 0, 1, reduction.dtype, terms);
}

void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction) {
  const BucketReduction elements = without_codec(reduction);
  std::vector<Layout> buckets;
  for (std::vector<BucketTensor>& parts : by_rank) buckets.emplace_back(std::move(parts), elements);
  const Steps steps(std::move(buckets), nccl.size(), false, elements_of(kNcclStepBytes / nccl.size(), elements));
  reduce_packed(nccl, steps, static_cast<size_t>(nccl.rank()), 1, reduction.dtype, terms_of(reduction));
}

}  // namespace hvd
