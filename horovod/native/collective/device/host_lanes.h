// A GPU's side of an allreduce on the host's route: what a step contributes is encoded and copied to the host, and what comes
// of it is copied back and decoded, each on a stream of its own, so that steps follow each other like cars on lanes.
//
//   tensors --encode--> memory of the GPU --copy--> host    (send)
//   tensors <--decode-- memory of the GPU <--copy-- host    (receive)
//
// A step's messages lie one after the other, at the same places both ways: group by group, each at a multiple of 64 bytes,
// and in a group as Steps says. Without a codec messages are elements. Calls return at once, but those that await.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "collective/device/host_workspace.h"
#include "collective/device/uploads.h"
#include "collective/steps.h"

namespace hvd {

class HostLanes {
 public:
  // Steps between the first and the last of their stages on the GPU, at most.
  static constexpr uint32_t kDepth = 4;

  // The groups have one codec and dtype, and outlive the lanes; steps of each are done together. What is encoded is prescaled,
  // and only that: elements travel as they are.
  HostLanes(HostWorkspace& workspace, std::span<const Steps> groups, double prescale);

  size_t bytes(uint32_t step) const { return offset(step, groups_.size()); }
  size_t offset(uint32_t step, size_t group) const;

  // To host memory that nobody uses any more, bytes(step).
  void send(uint32_t step, std::byte* to);
  void await_sent(uint32_t step);
  // In this order: begin, everything, end; then await, after which nothing of the step is in use on the host.
  void begin_receiving(uint32_t step);
  void receive(uint32_t step, size_t offset, const std::byte* from, size_t bytes);
  void end_receiving(uint32_t step);
  void await_received(uint32_t step);

  // The stream goes on when all is decoded.
  void finish();

 private:
  struct Flight {  // of a step, in one direction
    std::byte* memory = nullptr;
    Event begin;  // of copying
    Event copied;
    Event processed;  // by the kernel that reads or writes the memory
  };
  Flight& sending(uint32_t step) { return sending_[step % kDepth]; }
  Flight& receiving(uint32_t step) { return receiving_[step % kDepth]; }
  void make_tables();

  // Constant after construction.
  HostWorkspace& workspace_;
  const std::span<const Steps> groups_;
  const double prescale_;
  const DType dtype_;
  const bool is_encoded_;
  const DeviceCodec codec_;
  PieceTables tables_;
  Event begin_;

  std::array<Flight, kDepth> sending_, receiving_;
};

}  // namespace hvd
