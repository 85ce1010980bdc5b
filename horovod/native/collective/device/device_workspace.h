// The GPU workspace that an engine's process sets share, because their operations have one order: two streams, memory, and
// tables of pieces to upload. Engine thread only.
//
// Kernels and copies use `stream`, NCCL's transfers use `wire`, so that one step is encoded while another travels. An operation
// begins and ends on `stream`: a wait for that is a wait for all of it, and the next operation may use its memory.
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

  // GPU memory, by number, of the operation that is being enqueued. Grows on demand; reused in the order of the stream.
  std::byte* scratch(size_t bytes, size_t number = 0) {
    Scratch& of = scratch_[number];
    if (bytes > of.bytes) {
      if (of.memory) await(device_.record(stream_));  // freeing waits for the GPU, and so perhaps for a peer
      of = {};                                        // free before allocating
      of = {device_.allocate(bytes), bytes};
    }
    return of.memory.get();
  }

  // The wire waits for the work that the stream has so far.
  void to_wire() { device_.wait(wire_, device_.record(stream_)); }
  // An event after the work that the wire has so far.
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
