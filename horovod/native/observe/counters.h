// Counters of one process set's work since it was made. The engine's thread writes them; any thread may read them.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd {

// X(member, meaning)
#define HVD_FOR_EACH_COUNTER(X)                                                                                       \
  X(operations, "operations carried out; the members of a group count singly")                                        \
  X(buckets, "fused batches: allreduces and reduce-scatters of one or more tensors, carried out as one")              \
  X(tensor_bytes, "bytes of tensors given to collectives, before compression")                                        \
  X(wire_bytes, "bytes this rank handed to others: sent, or written once for all who share memory")                   \
  X(announcements, "negotiation rounds: announcements sent to the coordinator")                                       \
  X(cache_hits, "requests announced by number")                                                                       \
  X(begun, "of these, in jobs of DDP, those carried out without waiting for an answer")                               \
  X(refusals, "requests refused because ranks disagreed")                                                             \
  X(saturated, "finite values that a codec's range cut off on this rank")                                             \
  X(residuals_dropped, "elements of error feedback that this rank dropped, because others encode these elements now") \
  X(waiting_microseconds, "time from submission until all ranks agreed, summed over operations")                      \
  X(gpu_operations, "those of operations that were on a GPU")                                                         \
  X(gpu_microseconds, "time that these took on the GPU, waiting for other ranks included; known when they are done")  \
  X(gpu_encode_microseconds, "of their allreduces through the host, stages that overlap: encoding, on the GPU")       \
  X(gpu_copy_to_host_microseconds, "copies from the GPU to the host")                                                 \
  X(gpu_reduce_microseconds, "reducing, on the host")                                                                 \
  X(gpu_copy_back_microseconds, "copies from the host to the GPU")                                                    \
  X(gpu_decode_microseconds, "decoding, on the GPU")                                                                  \
  X(gpu_whole_microseconds, "from before the first stage to after the last")                                          \
  X(collective_microseconds, "time spent in collectives")                                                             \
  X(collective_cpu_microseconds, "processor time that the engine's thread spent in collectives")

struct Counters {
#define HVD_COUNTER(member, meaning) std::atomic<int64_t> member{0};
  HVD_FOR_EACH_COUNTER(HVD_COUNTER)
#undef HVD_COUNTER
};

}  // namespace hvd
