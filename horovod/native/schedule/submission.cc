#include "schedule/submission.h"

#include <cmath>

#include "base/error.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw InvalidArgument("'" + name + "': " + why);
}

void check_reduction(const std::string& name, DType dtype, const Reduction& reduction) {
  if (reduction.op == ReduceOp::kAdasum) refuse(name, "Adasum is not served yet; use Average or Sum");
  if (!std::isfinite(reduction.prescale) || !std::isfinite(reduction.postscale)) {
    refuse(name, "prescale_factor and postscale_factor must be finite numbers");
  }
  if (reduction.codec == nullptr) return;
  if (!is_float(dtype)) {
    refuse(name, "a codec compresses floating-point tensors, not " + std::string(name_of(dtype)) +
                     "; submit integers uncompressed");
  }
  if (reduction.op != ReduceOp::kSum && reduction.op != ReduceOp::kAverage) {
    refuse(name, "codec " + reduction.codec->name() + " serves Sum and Average, not " +
                     std::string(name_of(reduction.op)) + "; use compression none for it");
  }
}

}  // namespace

Submission allreduce_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction) {
  if (tensors.empty()) refuse(name, "a group needs at least one tensor");
  Submission submission;
  submission.request.operation = Operation::kAllreduce;
  submission.request.dtype = tensors.front().dtype;
  submission.request.op = reduction.op;
  submission.request.prescale = reduction.prescale;
  submission.request.postscale = reduction.postscale;
  if (reduction.codec) submission.request.codec = reduction.codec->name();
  for (const TensorRef& tensor : tensors) {
    if (tensor.dtype != tensors.front().dtype) {
      refuse(name, "the tensors of a group have one dtype, not both " + std::string(name_of(tensors.front().dtype)) +
                       " and " + std::string(name_of(tensor.dtype)) + "; make a group for each");
    }
    submission.request.shapes.push_back(tensor.shape);
  }
  check_reduction(name, tensors.front().dtype, reduction);
  submission.request.name = std::move(name);
  submission.tensors = std::move(tensors);
  submission.codec = reduction.codec;
  return submission;
}

Submission allgather_submission(std::string name, TensorRef tensor) {
  Submission submission;
  submission.request.operation = Operation::kAllgather;
  submission.request.dtype = tensor.dtype;
  submission.request.name = std::move(name);
  submission.request.shapes.push_back(tensor.shape);
  submission.tensors.push_back(std::move(tensor));
  return submission;
}

Submission broadcast_submission(std::string name, TensorRef tensor, int root, int size) {
  if (root < 0 || root >= size) {
    refuse(name, "root rank " + std::to_string(root) + " is not one of the " + std::to_string(size) + " ranks");
  }
  Submission submission;
  submission.request.operation = Operation::kBroadcast;
  submission.request.dtype = tensor.dtype;
  submission.request.root = root;
  submission.request.name = std::move(name);
  submission.request.shapes.push_back(tensor.shape);
  submission.tensors.push_back(std::move(tensor));
  return submission;
}

Submission barrier_submission(std::string name) {
  Submission submission;
  submission.request.operation = Operation::kBarrier;
  submission.request.name = std::move(name);
  return submission;
}

}  // namespace hvd
