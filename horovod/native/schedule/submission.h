// An operation this rank has asked for: what is asked, and where its data lies.
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

constexpr int kCpu = -1;  // where a GPU's index could stand

// One tensor, contiguous, owned by the caller until the operation is done.
struct TensorRef {
  const void* source = nullptr;
  void* destination = nullptr;  // may equal source; null where the core allocates the result
  Shape shape;
  DType dtype = DType::kFloat32;
  std::shared_ptr<Feedback> feedback;  // allreduce with a codec: what quantisation loses is kept; of this operation alone
  int device = kCpu;                   // index of the GPU in whose memory it lies
  Stream stream = nullptr;             // on a GPU: the caller's, which has been given what the tensor waits for
  Witness witness;                     // of what the caller has lent
};

// Where the core lays out tensors one after the other, each starts at a multiple of 16 bytes, as any element needs.
constexpr size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

// How an allreduce or reduce-scatter combines. The codec is for the floating-point tensors of a group.
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
  std::vector<Event> ready;     // on a GPU: when they may be read and written
  std::vector<int64_t> splits;  // alltoall: rows for each rank of the set; empty: as many for each
  int64_t handle = 0;           // 0: nobody waits
  uint32_t announced_id = 0;    // how the coordinator was told; 0 = in full
  bool begins_batch = true;     // false: it goes together with the one submitted before
  uint32_t pass = 0;            // backward passes that had begun
  std::chrono::steady_clock::time_point submitted;
  std::shared_ptr<std::byte[]> memory;  // of a stand-in's tensors
};

// Each checks the caller's part and throws InvalidArgument for what is wrong on this rank alone.
Submission submission_of(Operation operation, std::string name, std::vector<TensorRef> tensors);  // that says no more
Submission allreduce_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction);
Submission reducescatter_submission(std::string name, std::vector<TensorRef> tensors, const Reduction& reduction);
Submission rooted_submission(Operation operation, std::string name, TensorRef tensor, int root);
Submission alltoall_submission(std::string name, TensorRef tensor, std::vector<int64_t> splits);
Submission barrier_submission(std::string name);
Submission join_submission();
Submission tune_submission(std::string name, std::string settings);
// `name` is of this question alone, on all ranks; `gradients` are names of operations, of which `has_part` says whether this
// rank has some gradients. With `ends` all ranks ask about the first gradient. When all have asked, no rank has the gradients
// that are still undecided. missing_gradients.h describes `anchor`.
Submission missing_submission(std::string name, const std::vector<std::string>& gradients, const std::vector<bool>& has_part,
                              bool ends, const std::string& anchor);
Submission add_process_set_submission(const std::vector<int>& ranks);
Submission remove_process_set_submission(int id);

// Completes and checks what depends on the ranks (by their number in the job) of the set the operation runs over.
void settle(Submission* submission, const std::vector<int>& ranks);

// What a rank that has joined takes part with in others' allreduce: elements that leave their result as it is without it. On a
// GPU, memory is still to be given to it.
Submission stand_in(const Request& request, SimdLevel level);
// Has the tensors lie one after the other from there on.
void place(Submission* stand_in, std::byte* memory);
// Fills them, by calls as those of repeat().
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
