// How the ranks of a host come to what they send to other hosts, and all of them to what has arrived: the first level of a
// hierarchy. Some of them, the carriers, have a slice each. In a step
//
//   every rank   await_room -> writes its data of the other carriers' slices to send_buffer() -> sent
//   a carrier    await_sent -> reads send_buffer_of() -> taken; await_receive_buffer -> messages arrive at receive_buffer()
//   every rank   publish -> await_published of each carrier -> reads receive_buffer() -> collected
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/steps.h"
#include "collective/tensor_memory.h"
#include "transport/rank_group.h"

namespace hvd {

// Where this rank is, and who else carries its slice.
struct HostRole {
  explicit HostRole(const RankGroup& group);
  bool carries() const { return local_rank < carriers; }

  int host = 0, local_rank = 0, hosts = 1, carriers = 1;
  std::vector<int> locals;   // ranks of this host
  std::vector<int> parties;  // carriers of this rank's slice, by host
};

// What the steps of an operation take: of a rank's send buffer, of a slice in it, and of what arrives for a slice.
struct HostSteps {
  const HostRole& role;
  TensorMemory& memory;
  std::span<const Steps> slices;  // by carrier
  uint32_t count = 0;

  // Whether a rank sends its data of a slice inside the host.
  bool is_sent(int slice, int rank) const { return slice != rank || memory.is_elsewhere(); }
  size_t slice_bytes(uint32_t step, int slice) const;
  // Where the data of a slice is in the send buffer of a rank; those of carriers lack their own slice.
  size_t send_offset(uint32_t step, int slice, int rank) const;
  size_t receive_bytes(uint32_t step, int slice) const;
};

class HostLevel {
 public:
  HostLevel() = default;
  HostLevel(const HostLevel&) = delete;
  virtual ~HostLevel() = default;

  // About how many elements of a bucket a step should have.
  virtual int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                                      bool gather) const = 0;
  // Before the first step; false if a step takes too much. The same answer on every rank.
  virtual bool begin(const HostSteps& steps) = 0;
  virtual void end() = 0;

  virtual void await_room(uint32_t step) = 0;
  virtual std::byte* send_buffer(uint32_t step, int slice) = 0;
  virtual void sent(uint32_t step) = 0;
  virtual void await_sent(uint32_t step) = 0;
  virtual std::byte* send_buffer_of(int local_rank, uint32_t step) = 0;
  virtual void taken() = 0;
  virtual void await_receive_buffer(uint32_t step) = 0;
  virtual std::byte* receive_buffer(int carrier, uint32_t step) = 0;
  virtual void publish(uint32_t step) = 0;
  virtual void await_published(uint32_t step, int carrier) = 0;
  virtual void collected() = 0;
};

}  // namespace hvd
