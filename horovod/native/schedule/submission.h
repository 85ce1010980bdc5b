// An operation this rank has asked for: what is asked, and where its data lies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "schedule/request.h"

namespace hvd {

// One tensor in CPU memory, contiguous, owned by the caller until the operation is done.
struct TensorRef {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source; null where the core allocates the result
  Shape shape;
  DType dtype = DType::kFloat32;
};

// How an allreduce combines.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::shared_ptr<const Codec> codec;
};

struct Submission {
  Request request;
  std::vector<TensorRef> tensors;
  std::shared_ptr<const Codec> codec;
  int64_t handle = 0;
  uint32_t announced_id = 0;  // how the coordinator was told; 0 = in full
};

// Each checks the caller's part and throws InvalidArgument for what is wrong on this rank alone.
Submission allreduce_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction);
Submission allgather_submission(std::string name, TensorRef tensor);
Submission broadcast_submission(std::string name, TensorRef tensor, int root, int size);
Submission barrier_submission(std::string name);

}  // namespace hvd
