// The workspace that an engine's process sets share on their GPU: two streams, memory, and tables on their way. One order of
// all operations holds for them as it does for the collectives of the CPU. Engine thread only.
//
// Kernels and copies are given to `stream`, NCCL's transfers to `wire`, so that one step of an operation is encoded while
// another travels. An operation begins and ends on `stream`: whoever waits for that waits for all, and its memory is the
// next one's.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "collective/device/piece_tables.h"
#include "device/device.h"

namespace hvd {

class DeviceWorkspace {
 public:
  DeviceWorkspace(Device& device, ProgressCallback attend)
      : device_(device),
        attend_(std::move(attend)),
        stream_(device.make_stream(true)),
        wire_(device.make_stream(true)),
        uploads_(device, stream_, attend_) {}
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  ~DeviceWorkspace() {
    for (const Stream stream : {stream_, wire_}) device_.give_back(stream);
  }

  Device& device() const { return device_; }
  DeviceKernels& kernels() const { return device_.kernels(); }
  Stream stream() const { return stream_; }
  Stream wire() const { return wire_; }
  Uploads& uploads() { return uploads_; }
  const ProgressCallback& progress_callback() const { return attend_; }
  void await(const Event& event) const { hvd::await(device_, event, attend_); }

  // Memory of the GPU for the operation that is being enqueued, by number; grows, and is used in the order of the stream.
  std::byte* scratch(size_t bytes, size_t number = 0) {
    Scratch& of = scratch_[number];
    if (bytes > of.bytes) {
      if (of.memory) await(device_.record(stream_));  // to free waits for the GPU, and that perhaps for a peer
      of = {};                                        // first free, then allocate
      of = {device_.allocate(bytes), bytes};
    }
    return of.memory.get();
  }

  // The wire goes on when the stream has done what it was given so far.
  void to_wire() { device_.wait(wire_, device_.record(stream_)); }
  // What the wire was given so far; for the stream to wait for.
  Event on_wire() { return device_.record(wire_); }
  void from_wire(const Event& event) { device_.wait(stream_, event); }

 private:
  // Constant after construction.
  Device& device_;
  const ProgressCallback attend_;
  const Stream stream_, wire_;

  struct Scratch {
    DeviceMemory memory;
    size_t bytes = 0;
  };

  Uploads uploads_;
  std::array<Scratch, 2> scratch_;
};

}  // namespace hvd
