// What the engine has done since it started. Written by the engine thread, read by any.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd {

// X(member, meaning)
#define HVD_FOR_EACH_COUNTER(X)                                            \
  X(operations, "operations carried out; the members of a group count singly") \
  X(buckets, "allreduce buckets carried out")                              \
  X(tensor_bytes, "bytes of tensors given to collectives")                 \
  X(wire_bytes, "bytes this rank handed to others: sent, or written once for all who share memory")                   \
  X(announcements, "announcements sent to the coordinator")                \
  X(cache_hits, "requests announced by number")                            \
  X(refusals, "requests refused because ranks disagreed")                  \
  X(saturated, "finite values that a codec's range cut off on this rank")  \
  X(collective_microseconds, "time spent in collectives")

struct Counters {
#define HVD_COUNTER(member, meaning) std::atomic<int64_t> member{0};
  HVD_FOR_EACH_COUNTER(HVD_COUNTER)
#undef HVD_COUNTER
};

}  // namespace hvd
