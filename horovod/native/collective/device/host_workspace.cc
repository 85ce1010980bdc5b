#include "collective/device/host_workspace.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/time_limits.h"

namespace hvd {
namespace {

constexpr size_t kLeastBytes = size_t{64} << 10;  // sizes are powers of two, so that most buffers can be reused

}  // namespace

DeviceMemory BufferPool::take(size_t bytes) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_taken || buffer.bytes < bytes || (best && best->bytes <= buffer.bytes)) continue;
    if (buffer.busy && device_.is_done(buffer.busy)) buffer.busy = nullptr;
    if (!buffer.busy) best = &buffer;
  }
  if (best == nullptr) {
    const size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
    buffers_.push_back(
        {kind_ == MemoryKind::kGpu ? device_.allocate(rounded) : device_.allocate_pinned(rounded), rounded, false, nullptr});
    best = &buffers_.back();
  }
  best->is_taken = true;
  return best->memory;
}

void BufferPool::release(const Event& event) {
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_taken) continue;
    buffer.is_taken = false;
    buffer.busy = event;
  }
}

HostTimes HostStopwatch::take() {
  std::vector<Pending> still;
  for (Pending& one : pending_) {
    if (!device_.is_done(one.end)) {
      still.push_back(std::move(one));
    } else {
      times_.*one.stage += std::llround(device_.milliseconds_between(one.begin, one.end) * 1e6);
    }
  }
  pending_ = std::move(still);
  HostTimes since;
  for (const Stage stage : {&HostTimes::encode, &HostTimes::copy_to_host, &HostTimes::reduce, &HostTimes::copy_back,
                            &HostTimes::decode, &HostTimes::whole}) {
    since.*stage = times_.*stage / 1000;
    times_.*stage %= 1000;  // the rest counts in the next call
  }
  return since;
}

void HostWorkspace::quiesce() {
  try {
    // The stream may wait for NCCL, and NCCL for a lost peer. Whoever handles the failure aborts NCCL afterwards.
    await_for_a_while(device, {stream, encoding, to_host, from_host, decoding}, time_limits::kGpuSettles);
  } catch (const InternalError&) {
    // A failed GPU writes nothing any more.
  }
}

void HostWorkspace::pin(Window& window, int ranks) {
  if (!window_pins.empty()) return;
  for (int rank = 0; rank < ranks; ++rank) window_pins.push_back(device.pin(window.area(rank), window.area_bytes()));
}

void HostWorkspace::end_operation() {
  const Event end = device.record(stream);
  pinned.release(end);
  on_gpu.release(end);
}

}  // namespace hvd
