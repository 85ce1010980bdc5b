// The workspace of the host's route: memory for data between GPU and host, a stopwatch, and a stream for each stage.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/context.h"
#include "collective/device/device_workspace.h"
#include "device/device.h"

namespace hvd {

// Buffers for data between GPU and host, reused when the GPU is done with them.
enum class MemoryKind { kGpu, kPinned };

class BufferPool {
 public:
  // The device must outlive the pool.
  BufferPool(Device& device, MemoryKind kind) : device_(device), kind_(kind) {}

  // Memory for the current operation, or for as long as a caller keeps the pointer.
  DeviceMemory take(size_t bytes);
  // Ends the operation: its buffers are free when the event is done.
  void release(const Event& event);

 private:
  struct Buffer {
    DeviceMemory memory;
    size_t bytes = 0;
    bool is_taken = false;
    Event busy;  // null: nothing to wait for
  };

  Device& device_;
  const MemoryKind kind_;
  std::vector<Buffer> buffers_;
};

// Times of the stages of allreduces on the host's route, in microseconds. Stages overlap: in a good pipeline `whole` is little
// more than the longest other stage.
struct HostTimes {
  int64_t encode = 0;        // on the GPU
  int64_t copy_to_host = 0;  // by the GPU's copy engine
  int64_t reduce = 0;        // by this thread, without waiting for other ranks
  int64_t copy_back = 0;
  int64_t decode = 0;
  int64_t whole = 0;  // on the stream of operations, from before the first step to after the last
};

class HostStopwatch {
 public:
  using Stage = int64_t HostTimes::*;

  explicit HostStopwatch(Device& device) : device_(device) {}

  // Adds the time between two events on a GPU's stream.
  void add(Stage stage, Event begin, Event end) { pending_.push_back({stage, std::move(begin), std::move(end)}); }
  // Adds the time of this thread since `begin`.
  void add_since(Stage stage, std::chrono::steady_clock::time_point begin) {
    times_.*stage += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  }
  // Returns the times since the last call, of work that the GPU has completed.
  HostTimes take();

 private:
  struct Pending {
    Stage stage;
    Event begin, end;
  };
  Device& device_;
  std::vector<Pending> pending_;
  HostTimes times_;  // in nanoseconds: many steps take less than a microsecond
};

struct HostWorkspace {
  HostWorkspace(const DeviceWorkspace& ordered, CollectiveContext& collective_context)
      : device(ordered.device()),
        context(collective_context),
        attend(ordered.progress_callback()),
        stream(ordered.stream()),
        encoding(device.make_stream(true)),
        to_host(device.make_stream(true)),
        from_host(device.make_stream(true)),
        decoding(device.make_stream(true)),
        pinned(device, MemoryKind::kPinned),
        on_gpu(device, MemoryKind::kGpu),
        uploads(device, stream, attend),
        stopwatch(device) {}
  HostWorkspace(const HostWorkspace&) = delete;
  ~HostWorkspace() {
    for (const Stream made : {encoding, to_host, from_host, decoding}) device.give_back(made);
  }

  // Returns when the event is done. Meanwhile advances transfers, and serves other ranks.
  void await(const Event& event) const { hvd::await(device, event, attend); }
  // Waits, after a failure and before memory is freed, until the GPU has done the route's work or no longer proceeds.
  void quiesce();
  // Pins a window's areas for copies by the GPU. Only the first call has an effect: a process set has one window.
  void pin(Window& window, int ranks);
  // Ends the operation: its memory is free when the stream is done with the work so far.
  void end_operation();

  // Constant after construction.
  Device& device;
  CollectiveContext& context;
  const ProgressCallback attend;
  const Stream stream;                                  // the order of operations
  const Stream encoding, to_host, from_host, decoding;  // one per stage, so that all stages overlap

  BufferPool pinned, on_gpu;
  Uploads uploads;
  HostStopwatch stopwatch;
  std::vector<std::shared_ptr<void>> window_pins;  // by rank
};

}  // namespace hvd
