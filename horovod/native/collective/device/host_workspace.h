// The workspace of the host's route: memory for data on its way between GPU and host, a stopwatch, and streams for each of
// its stages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/context.h"
#include "collective/device/device_workspace.h"
#include "device/device.h"

namespace hvd {

// Memory for what is on its way between GPU and host, used again when the GPU has done with it.
enum class MemoryKind { kGpu, kPinned };

class BufferPool {
 public:
  // The device outlives the pool.
  BufferPool(Device& device, MemoryKind kind) : device_(device), kind_(kind) {}

  // For the operation under way. Whoever needs it for longer keeps what it is part of.
  DeviceMemory take(size_t bytes);
  // Ends the operation: all that was taken since is free when the event has come.
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

// What allreduces on the host's route have taken, stage by stage: microseconds. Stages overlap: where the pipeline is good,
// `whole` is little more than the longest of the others.
struct HostTimes {
  int64_t encode = 0;        // on the GPU
  int64_t copy_to_host = 0;  // by its copy engine
  int64_t reduce = 0;        // by this thread, without waiting for others
  int64_t copy_back = 0;
  int64_t decode = 0;
  int64_t whole = 0;  // on the stream that allreduces are ordered on, from before the first step to after the last
};

class HostStopwatch {
 public:
  using Stage = int64_t HostTimes::*;

  explicit HostStopwatch(Device& device) : device_(device) {}

  // What happens on a GPU's stream between two events.
  void add(Stage stage, Event begin, Event end) { pending_.push_back({stage, std::move(begin), std::move(end)}); }
  // What this thread has done since.
  void add_since(Stage stage, std::chrono::steady_clock::time_point begin) {
    times_.*stage += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  }
  // Since the last call, of what the GPU has done.
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

  // Returns when the event has come; transfers go on meanwhile, and others are served.
  void await(const Event& event) const { hvd::await(device, event, attend); }
  // Returns when the GPU has done all it was given by the host's route, or does not come to it: after a failure, before
  // memory goes.
  void quiesce();
  // Has the GPU copy to and from a window's areas, from the first time on: there is one in a process set.
  void pin(Window& window, int ranks);
  // Ends the operation on the stream: its memory is free when the stream has come here.
  void end_operation();

  // Constant after construction.
  Device& device;
  CollectiveContext& context;
  const ProgressCallback attend;
  const Stream stream;                                  // what operations are ordered on
  const Stream encoding, to_host, from_host, decoding;  // one for each stage, so that all of them overlap

  BufferPool pinned, on_gpu;
  Uploads uploads;
  HostStopwatch stopwatch;
  std::vector<std::shared_ptr<void>> window_pins;  // by rank
};

}  // namespace hvd
