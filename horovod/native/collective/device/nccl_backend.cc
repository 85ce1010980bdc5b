#include "collective/device/nccl_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "collective/allreduce.h"
#include "collective/allreduce_patterns.h"
#include "collective/device/gpu_backend.h"
#include "collective/device/gpu_tensors.h"
#include "collective/device/nccl_wire.h"
#include "collective/device/piece_tables.h"
#include "collective/steps.h"

namespace hvd {
namespace {

// A single tensor is reduced in place. Several tensors are packed step by step; one step is on the wire while kernels pack and
// unpack others.

constexpr int64_t kNcclStepBytes = int64_t{32} << 20;
constexpr size_t kNcclSlots = 2;  // of steps: one on the wire, one being packed

// A reduction in NCCL's terms.
struct Terms {
  DType dtype = DType::kFloat32;
  DeviceSum sum = DeviceSum::kSum;
  double prescale = 1.0;
  Scale scale;
};

Terms terms_of(const BucketReduction& reduction) {
  Terms terms{reduction.dtype, DeviceSum::kSum, reduction.prescale, reduction.scale};
  if (reduction.op == ReduceOp::kMin) terms.sum = DeviceSum::kMin;
  if (reduction.op == ReduceOp::kMax) terms.sum = DeviceSum::kMax;
  if (reduction.op == ReduceOp::kProduct) terms.sum = DeviceSum::kProduct;
  if (reduction.dtype == DType::kBool) {  // 0 and 1: "any" is Max, "all" is Min
    const bool is_any = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kMax;
    terms.dtype = DType::kUInt8;
    terms.sum = is_any ? DeviceSum::kMax : DeviceSum::kMin;
  }
  if (reduction.dtype == DType::kFloat16 && reduction.op == ReduceOp::kSum) {
    // float16 is at most 65504: an average must not overflow if its terms did not.
    terms.prescale *= reduction.scale.factor / reduction.scale.divisor;
    terms.scale = {};
  }
  return terms;
}

void sum_on_wire(const NcclContext& nccl, const Terms& terms, const void* source, void* destination, int64_t count) {
  if (!nccl.communicator.serves(terms.dtype)) {
    throw InternalError(Said::nccl_lacks_dtype, {.others = {{"dtype", std::string(name_of(terms.dtype))}}});
  }
  nccl.workspace.to_wire();
  nccl.communicator.allreduce(source, destination, count, terms.dtype, terms.sum);
  // The bytes that a ring sends.
  const int64_t bytes = count * static_cast<int64_t>(size_of(terms.dtype));
  nccl.context.wire_bytes += 2 * bytes * (nccl.size() - 1) / nccl.size();
}

// destination = source * prescale * scale. Source and destination may be the same memory.
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

// Reduces one tensor in place. If it is scaled, kernels must support `dtype`.
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

// Packs a range of each bucket in every step, and unpacks the results of `results` buckets from `first_result` on.
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

// reducescatter() of collective/allreduce.h, by an NCCL allreduce of everything.
void reducescatter_by_sums_of_all(const NcclContext& nccl, std::vector<std::vector<BucketTensor>> by_rank,
                                  const BucketReduction& reduction) {
  const BucketReduction elements = without_codec(reduction);
  const Steps steps(layouts_of(std::move(by_rank), elements), nccl.size(), false,
                    elements_of(kNcclStepBytes / nccl.size(), elements));
  reduce_packed(nccl, steps, static_cast<size_t>(nccl.rank()), 1, reduction.dtype, terms_of(reduction));
}

// GPU tensors whose bytes NCCL carries. Operations that NCCL and the kernels do not support go through the host.
class NcclBackend final : public GpuBackend {
 public:
  // Collective: joins the GPUs, and measures the costs of moving bytes. The library is used only during this call.
  NcclBackend(Common common, DeviceLibrary& library) : GpuBackend(std::move(common)), communicator_(join(library)) {
    if (rules_.is_deterministic) return;
    try {
      rules_.costs.gpu = measure_gpu(nccl());
    } catch (...) {
      communicator_->abort();  // a peer may be lost: abort, so that no rank waits for it
      throw;
    }
  }

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route& route) override {
    if (route.is_staged) return host().allreduce(tensors, reduction, route);
    const AllreducePattern& pattern = pattern_of(route);
    if (pattern.run_by_nccl != nullptr) return pattern.run_by_nccl(nccl(), tensors, reduction);
    const auto memory = make_gpu_tensors(*workspace_);
    const auto wire = make_nccl_wire(nccl());
    const auto level = make_nccl_level(*wire);
    pattern.run({context_, *memory, *wire, level.get()}, tensors, reduction, route.gathers());
  }

  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override {
    host().adasum(tensors, reduction);
  }

  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override {
    host().average_integers(tensors, reduction, on_plan);
  }

  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction,
                     const Route& route) override {
    if (route.is_staged) return host().reducescatter(std::move(by_rank), reduction, route);
    if (route.pattern == Pattern::kLibrary) return reducescatter_by_sums_of_all(nccl(), std::move(by_rank), reduction);
    const auto memory = make_gpu_tensors(*workspace_);
    const auto wire = make_nccl_wire(nccl());
    hvd::reducescatter({context_, *memory, *wire}, layouts_of(std::move(by_rank), reduction));
  }

  void broadcast(int root, void* data, size_t bytes) override {
    if (bytes == 0) return;
    const NcclContext by = nccl();
    workspace_->to_wire();
    by.communicator.broadcast(data, bytes, root);
    workspace_->from_wire(workspace_->on_wire());
    // As in a ring, whose last rank sends nothing.
    const int place = (by.rank() - root + by.size()) % by.size();
    if (place != by.size() - 1) context_.wire_bytes += static_cast<int64_t>(bytes);
  }

  void move(const Movement& movement) override {
    std::vector<DeviceTransfer> outgoing, incoming;
    for (int r = 0; r < context_.group.size(); ++r) {
      const auto [from, bytes] = movement.sent[static_cast<size_t>(r)];
      const auto [to, coming] = movement.received[static_cast<size_t>(r)];
      if (r == context_.group.rank()) {
        copy(movement.destination + to, movement.source + from, bytes);
      } else {
        outgoing.push_back({r, const_cast<std::byte*>(movement.source) + from, bytes});
        incoming.push_back({r, movement.destination + to, coming});
      }
    }
    workspace_->to_wire();
    nccl().exchange(std::move(outgoing), std::move(incoming));
    workspace_->from_wire(workspace_->on_wire());
  }

  int64_t take_saturated() override {
    return host_ ? host_->take_saturated() : GpuBackend::take_saturated();  // includes the kernels' count
  }

  HostTimes take_host_times() override { return host_ ? host_->take_host_times() : HostTimes(); }
  std::string failure() override { return communicator_->failure(); }
  void abort() override { communicator_->abort(); }

 private:
  NcclContext nccl() { return {context_, *workspace_, *communicator_}; }

  // made when first needed
  GpuBackend& host() {
    if (host_ == nullptr) host_ = make_host_backend(Common{workspace_, context_, rules_, agreement_});
    return *host_;
  }

  // Rank 0 makes the id, or sends the reason why it cannot. Afterwards a rank that fails gives up, and the others notice while
  // they wait for it in NCCL.
  std::unique_ptr<Communicator> join(DeviceLibrary& library) const {
    const RankGroup& group = context_.group;
    const auto fail = [&] [[noreturn]] (int position, const Failure& cause) {
      const int rank = group.ranks()[static_cast<size_t>(position)];
      Failure failure(Said::nccl_cannot_join, {.others = {{"rank", rank}}}, cause);
      if (failure.facts.ranks.empty()) failure.facts.ranks = {rank};
      throw InternalError(failure);
    };
    CommunicatorId id{};
    std::string failed;
    if (group.rank() == 0) {
      try {
        id = library.make_communicator_id();
      } catch (const InternalError& error) {
        failed = error.what();
      }
    }
    if (const std::string why = exchange_texts(context_, failed).front(); !why.empty()) {
      fail(0, {Said::gpu_failed, {.others = {{"why", why}}}});
    }
    const std::string id_text = exchange_texts(context_, {reinterpret_cast<const char*>(id.data()), id.size()}).front();
    std::memcpy(id.data(), id_text.data(), id.size());
    try {
      return library.make_communicator(device(), workspace_->wire(), id, group.rank(), group.size(),
                                       workspace_->progress_callback());
    } catch (const InternalError& error) {
      fail(group.rank(), error.failure());
    }
  }

  const std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<GpuBackend> host_;
};

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
  const Steps steps({Layout({tensors.begin(), tensors.end()}, elements)}, 1, false, elements_of(kNcclStepBytes, elements));
  reduce_packed(nccl, steps, 0, 1, reduction.dtype, terms);
}

std::unique_ptr<GpuBackend> make_nccl_backend(GpuBackend::Common common, DeviceLibrary& library) {
  return std::make_unique<NcclBackend>(std::move(common), library);
}

}  // namespace hvd
