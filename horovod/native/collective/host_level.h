// The level of a hierarchical route inside a host: ranks pass data to the carriers, and read what the carriers receive from
// other hosts. Each carrier has one slice. In a step
//
//   every rank   await_room -> writes its data of the other carriers' slices to send_buffer() -> sent
//   a carrier    await_sent -> reads send_buffer_of() -> taken; await_receive_buffer -> messages arrive at receive_buffer()
//   every rank   publish -> await_published of each carrier -> reads receive_buffer() -> collected
//
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/context.h"
#include "collective/steps.h"
#include "collective/tensor_memory.h"
#include "transport/rank_group.h"

namespace hvd {

// This rank's place, and the ranks that carry the same slice on other hosts.
struct HostRole {
  explicit HostRole(const CollectiveContext& context);
  bool carries() const { return local_rank < carriers; }

  int host = 0, local_rank = 0, hosts = 1, carriers = 1;
  std::vector<int> locals;   // ranks of this host
  std::vector<int> parties;  // carriers of this rank's slice, by host; empty if it carries none
};

// Sizes and offsets of an operation's steps in the buffers.
struct HostSteps {
  const HostRole& role;
  TensorMemory& memory;
  std::span<const Steps> slices;  // by carrier
  uint32_t count = 0;

  // Whether the rank writes its data of the slice to its send buffer. A carrier reads its own in place unless it is elsewhere.
  bool is_sent(int slice, int rank) const { return slice != rank || memory.is_elsewhere(); }
  size_t slice_bytes(uint32_t step, int slice) const;
  // The offset of a slice in a rank's send buffer.
  size_t send_offset(uint32_t step, int slice, int rank) const;
  size_t receive_bytes(uint32_t step, int slice) const;
};

class HostLevel {
 public:
  HostLevel() = default;
  HostLevel(const HostLevel&) = delete;
  virtual ~HostLevel() = default;

  // The suggested number of elements of a bucket in one step.
  virtual int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                                      bool gather) const = 0;
  // Call it before the first step. Returns false, on all ranks alike, if a step needs too much memory.
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

// The level of ranks of a host that share memory: no message is sent inside the host. The group must have a host window.
std::unique_ptr<HostLevel> make_window_level(const CollectiveContext& context);

}  // namespace hvd
