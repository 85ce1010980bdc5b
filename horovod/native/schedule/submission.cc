#include "schedule/submission.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "schedule/missing_gradients.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const std::string& name, Said said, std::vector<Fact> others = {}) {
  throw InvalidArgument(said, {.tensor = name, .others = std::move(others)});
}

std::string text_of(DType dtype) { return std::string(name_of(dtype)); }

void check_reduction(const Request& request, const Reduction& reduction) {
  const std::string& name = request.name;
  auto first = [&](auto matches) { return std::find_if(request.dtypes.begin(), request.dtypes.end(), matches); };
  const auto none = request.dtypes.end();
  if (!std::isfinite(reduction.prescale) || !std::isfinite(reduction.postscale)) {
    refuse(name, Said::factors_not_finite);
  }
  if (reduction.op == ReduceOp::kAdasum) {
    const auto other = first([](DType dtype) { return !is_float(dtype) || dtype == DType::kBFloat16; });
    if (other != none) refuse(name, Said::adasum_dtype, {{"dtype", text_of(*other)}});
  }
  if (reduction.codec == nullptr) return;
  if (first([](DType dtype) { return is_float(dtype); }) == none) {
    refuse(name, Said::codec_of_integers, {{"dtype", text_of(request.dtypes.front())}});
  }
  if (reduction.op != ReduceOp::kSum && reduction.op != ReduceOp::kAverage) {
    const std::string op(name_of(reduction.op));
    refuse(name, Said::codec_of_other_op, {{"codec", reduction.codec->name()}, {"op", op}});
  }
}

void check_feedback(const Submission& submission) {
  const std::string& name = submission.request.name;
  std::unordered_set<const Feedback*> seen;
  for (const TensorRef& tensor : submission.tensors) {
    if (tensor.feedback == nullptr) continue;
    if (submission.request.operation != Operation::kAllreduce || submission.codec == nullptr || !is_float(tensor.dtype)) {
      refuse(name, Said::feedback_misplaced);
    }
    if (tensor.feedback->count() != element_count(tensor.shape)) {
      refuse(name, Said::feedback_of_other_size, {{"count", tensor.feedback->count()}, {"shape", to_text(tensor.shape)}});
    }
    if (!seen.insert(tensor.feedback.get()).second) refuse(name, Said::feedback_shared);
  }
}

// "on GPU 1"
std::string place_text(int device) { return device == kCpu ? "in CPU memory" : "on GPU " + std::to_string(device); }

// The device of all tensors of a group.
int common_device(const std::string& name, const std::vector<TensorRef>& tensors) {
  const int device = tensors.front().device;
  for (size_t t = 1; t < tensors.size(); ++t) {
    if (tensors[t].device == device) continue;
    refuse(name, Said::group_on_several_devices,
           {{"first", place_text(device)}, {"number", t}, {"second", place_text(tensors[t].device)}});
  }
  return device;
}

// Without options.
Submission submission_of(Operation operation, std::string name, std::vector<TensorRef> tensors) {
  if (tensors.empty()) refuse(name, Said::group_empty);
  Submission submission;
  submission.request.operation = operation;
  for (const TensorRef& tensor : tensors) {
    submission.request.dtypes.push_back(tensor.dtype);
    submission.request.shapes.push_back(tensor.shape);
  }
  submission.device = common_device(name, tensors);
  submission.request.on_gpu = submission.device != kCpu;
  submission.request.name = std::move(name);
  submission.tensors = std::move(tensors);
  return submission;
}

Submission reduction_submission(Operation operation, std::string name, std::vector<TensorRef> tensors,
                                const Reduction& reduction) {
  Submission submission = submission_of(operation, std::move(name), std::move(tensors));
  Request& request = submission.request;
  check_reduction(request, reduction);
  request.op = reduction.op;
  request.prescale = reduction.prescale;
  request.postscale = reduction.postscale;
  if (reduction.codec) request.codec = reduction.codec->name();
  submission.codec = reduction.codec;
  check_feedback(submission);
  return submission;
}

Submission bare_submission(Operation operation, std::string name, std::vector<int64_t> set = {}) {
  Submission submission;
  submission.request.operation = operation;
  submission.request.name = std::move(name);
  submission.request.set = std::move(set);
  return submission;
}

void settle_splits(Submission* submission, size_t ranks) {
  const std::string& name = submission->request.name;
  const Shape& shape = submission->tensors.front().shape;
  if (shape.empty()) return;  // the coordinator refuses it, since other ranks may pass a tensor with rows
  std::vector<int64_t>& splits = submission->splits;
  const auto size = static_cast<int64_t>(ranks);
  if (splits.empty()) {
    if (shape[0] % size != 0) {
      refuse(name, Said::rows_not_divisible, {{"rows", shape[0]}, {"size", size}});
    }
    splits.assign(ranks, shape[0] / size);
  }
  if (splits.size() != ranks) {
    refuse(name, Said::splits_of_other_length, {{"entries", splits.size()}, {"size", size}});
  }
  if (std::any_of(splits.begin(), splits.end(), [](int64_t rows) { return rows < 0; })) {
    refuse(name, Said::splits_negative);
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  if (sum > shape[0]) {
    refuse(name, Said::splits_too_large, {{"sum", sum}, {"rows", shape[0]}});
  }
}

}  // namespace

Submission allreduce_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction) {
  return reduction_submission(Operation::kAllreduce, std::move(name), std::move(tensors), reduction);
}

Submission reducescatter_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction) {
  for (const TensorRef& tensor : tensors) {
    if (tensor.shape.empty()) refuse(name, Said::scatter_without_dimensions);
  }
  if (reduction.op == ReduceOp::kAdasum) refuse(name, Said::reducescatter_adasum);
  return reduction_submission(Operation::kReducescatter, std::move(name), std::move(tensors), reduction);
}

Submission allgather_submission(std::string name, std::vector<TensorRef> tensors) {
  return submission_of(Operation::kAllgather, std::move(name), std::move(tensors));
}

Submission broadcast_submission(std::string name, TensorRef tensor, int root) {
  Submission submission = submission_of(Operation::kBroadcast, std::move(name), {std::move(tensor)});
  submission.request.root = root;
  return submission;
}

Submission alltoall_submission(std::string name, TensorRef tensor, std::vector<int64_t> splits) {
  Submission submission = submission_of(Operation::kAlltoall, std::move(name), {std::move(tensor)});
  submission.splits = std::move(splits);
  return submission;
}

Submission barrier_submission(std::string name) { return bare_submission(Operation::kBarrier, std::move(name)); }

Submission tune_submission(std::string name, std::string settings) {
  Settings().tune(settings);  // throws if a value is invalid
  Submission submission = bare_submission(Operation::kTune, std::move(name));
  submission.request.text = std::move(settings);
  return submission;
}

Submission missing_submission(std::string name, const std::vector<std::string>& gradients, const std::vector<bool>& has_part,
                              bool ends, const std::string& anchor) {
  if (gradients.size() != has_part.size()) refuse(name, Said::parts_do_not_fit);
  std::vector<MissingGradients::Subject> about;
  for (size_t i = 0; i < gradients.size(); ++i) about.push_back({gradients[i], has_part[i], ends && i == 0});
  if (!anchor.empty()) about.push_back({.name = anchor, .is_anchor = true});
  Submission submission = bare_submission(Operation::kMissing, std::move(name));
  submission.request.text = to_text(about);
  return submission;
}

Submission join_submission() { return bare_submission(Operation::kJoin, "join.noname"); }

Submission add_process_set_submission(const std::vector<int>& ranks) {
  return bare_submission(Operation::kAddProcessSet, "process_set", {ranks.begin(), ranks.end()});
}

Submission remove_process_set_submission(int id) { return bare_submission(Operation::kRemoveProcessSet, "process_set", {id}); }

void settle(Submission* submission, const std::vector<int>& ranks) {
  const Request& request = submission->request;
  if (request.operation == Operation::kAlltoall) settle_splits(submission, ranks.size());
  if (request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum && !std::has_single_bit(ranks.size())) {
    refuse(request.name, Said::adasum_size, {{"size", ranks.size()}});
  }
  if (kind_of(request.operation).has_root && std::find(ranks.begin(), ranks.end(), request.root) == ranks.end()) {
    refuse(request.name, Said::root_outside, {{"root", request.root}, {"members", ranks_text(ranks)}});
  }
}

void place(Submission* stand_in, std::byte* memory) {
  for (size_t t = 0; t < stand_in->tensors.size(); ++t) {
    stand_in->tensors[t].source = stand_in->tensors[t].destination = memory;
    memory += padded(static_cast<size_t>(stand_in->request.bytes_of(t)));
  }
}

Submission stand_in(const Request& request, SimdLevel level) {
  Submission submission;
  submission.request = request;
  size_t bytes = 0;
  for (size_t t = 0; t < request.shapes.size(); ++t) {
    bytes += padded(static_cast<size_t>(request.bytes_of(t)));
    TensorRef& tensor = submission.tensors.emplace_back();
    tensor.shape = request.shapes[t];
    tensor.dtype = request.dtypes[t];
  }
  if (!request.codec.empty()) submission.codec = codec_named(request.codec, level);
  if (request.on_gpu) return submission;
  submission.memory.reset(new std::byte[bytes]);  // uninitialised, unlike make_shared
  place(&submission, submission.memory.get());
  fill_stand_in(
      submission, [](std::byte* to, int byte, size_t length) { std::memset(to, byte, length); },
      [](std::byte* to, const std::byte* from, size_t length) { std::memcpy(to, from, length); });
  return submission;
}

}  // namespace hvd
