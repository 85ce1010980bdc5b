#include "schedule/bucket_tensors.h"

namespace hvd {

BucketReduction reduction_of(const Submission& submission, DType dtype, int size) {
  const Request& request = submission.request;
  BucketReduction reduction;
  reduction.dtype = dtype;
  reduction.op = request.op;
  reduction.prescale = request.prescale;
  reduction.scale = {request.postscale, 1.0};
  if (request.op == ReduceOp::kAverage) {
    // A mean of truth values, truncated like every integer mean, is true when all are.
    const bool is_bool = dtype == DType::kBool;
    reduction.op = is_bool ? ReduceOp::kMin : ReduceOp::kSum;
    reduction.scale.divisor = is_bool ? 1.0 : static_cast<double>(size);
  }
  if (is_float(dtype)) reduction.codec = submission.codec.get();
  return reduction;
}

std::vector<std::pair<BucketTensor, size_t>> bucket_tensors_of(const Submission& submission, DType dtype, int rank,
                                                               DrawKeys& draw_keys) {
  const std::string& name = submission.request.name;
  const bool draws = submission.codec && submission.codec->is_stochastic();
  const uint64_t operation_key = draws ? draw_keys.next(name) : 0;
  std::vector<std::pair<BucketTensor, size_t>> all;
  for (size_t t = 0; t < submission.tensors.size(); ++t) {
    const TensorRef& tensor = submission.tensors[t];
    if (tensor.dtype != dtype) continue;
    BucketTensor member{.source = tensor.source, .destination = tensor.destination, .witness = tensor.witness};
    member.count = element_count(tensor.shape);
    member.feedback = tensor.feedback.get();
    if (draws) {
      // Feedback counts for itself, and goes into checkpoints: resumed training draws as if it had never stopped.
      const uint64_t key = mixed(member.feedback ? draw_key(name, member.feedback->uses++) : operation_key, t);
      member.sent_key = mixed(mixed(key, static_cast<uint64_t>(Stage::kSent)), static_cast<uint64_t>(rank));
      member.result_key = mixed(key, static_cast<uint64_t>(Stage::kResult));
    }
    all.emplace_back(member, t);
  }
  return all;
}

}  // namespace hvd
