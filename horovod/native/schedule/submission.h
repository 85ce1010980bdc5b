// A submission: an operation that this rank requests, and the memory of its tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "codec/codec.h"
#include "collective/feedback.h"
#include "collective/reduce.h"
#include "device/stream.h"
#include "schedule/request.h"

namespace hvd {

constexpr int kCpu = -1;  // in place of a GPU's index

// A contiguous tensor. The caller owns its memory and keeps it until the operation is done.
struct TensorRef {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source; null: the core allocates the result
  Shape shape;
  DType dtype = DType::kFloat32;
  std::shared_ptr<Feedback> feedback;  // allreduce with a codec: keeps quantisation errors; used by one operation at a time
  int device = kCpu;                   // index of the GPU that has the memory
  Stream stream = nullptr;             // on a GPU: the caller's stream, whose work so far precedes the operation
  Witness witness;                     // of the caller's memory
};

// The core starts each tensor at a multiple of 16 bytes, an alignment for any element.
constexpr size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

// The parameters of an allreduce or reduce-scatter. The codec applies to the floating-point tensors of a group.
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
  int device = kCpu;            // of all tensors
  std::vector<Event> ready;     // on a GPU: the tensors may be used when these have come
  std::vector<int64_t> splits;  // alltoall: rows for each rank of the set; empty: equal numbers
  int64_t handle = 0;           // 0: no caller
  uint32_t announced_id = 0;    // the id by which it was announced; 0 = in full
  bool begins_batch = true;     // false: it belongs to the batch of the submission before
  uint32_t pass = 0;            // number of backward passes begun
  std::chrono::steady_clock::time_point submitted;
  std::shared_ptr<std::byte[]> memory;  // of the tensors of a stand-in in CPU memory
};

// Each throws InvalidArgument for arguments that are wrong on this rank, independent of other ranks.
Submission allreduce_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction);
Submission reducescatter_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction);
Submission allgather_submission(std::string name, std::vector<TensorRef> tensors);
Submission broadcast_submission(std::string name, TensorRef tensor, int root);
Submission alltoall_submission(std::string name, TensorRef tensor, std::vector<int64_t> splits);
Submission barrier_submission(std::string name);
Submission join_submission();
Submission tune_submission(std::string name, std::string settings);
// See missing_gradients.h. `name` must be unique on all ranks. `has_part`: whether this rank has some gradients of each.
// `ends`: all ranks ask about the first gradient, and when they have, no rank has the undecided ones.
Submission missing_submission(std::string name, const std::vector<std::string>& gradients, const std::vector<bool>& has_part,
                              bool ends, const std::string& anchor);
Submission add_process_set_submission(const std::vector<int>& ranks);
Submission remove_process_set_submission(int id);

// Completes and checks the parts that depend on the ranks of the operation's set, which are numbered in the job.
void settle(Submission* submission, const std::vector<int>& ranks);

// The submission of a rank that has joined, for an allreduce of the others, whose result it does not change. On a GPU it has no
// memory: call place() and fill_stand_in().
Submission stand_in(const Request& request, SimdLevel level);
// Places the tensors one after the other from `memory` on.
void place(Submission* stand_in, std::byte* memory);
// Fills the tensors with neutral elements. `fill` and `copy`: see repeat().
template <typename Fill, typename Copy>
void fill_stand_in(const Submission& stand_in, Fill fill, Copy copy) {
  const Request& request = stand_in.request;
  for (size_t t = 0; t < stand_in.tensors.size(); ++t) {
    const TensorRef& tensor = stand_in.tensors[t];
    repeat(neutral_element(tensor.dtype, request.op, request.prescale), size_of(tensor.dtype),
           static_cast<std::byte*>(tensor.destination), static_cast<size_t>(request.bytes_of(t)), fill, copy);
  }
}

}  // namespace hvd
