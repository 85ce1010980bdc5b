// A GPU as the core sees it: streams, events, memory, kernels. Implemented in libhorovod_cuda.so (cuda/), which alone links
// the CUDA runtime and is opened with the first GPU tensor; this folder's headers are all the two have in common.
//
// Work on a stream is done later, in order; every call here returns at once unless it says otherwise. All calls may come from
// any thread, and leave the thread's current CUDA device as it was. What the runtime refuses throws InternalError that names
// the call, the GPU and the runtime's own words.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/device_kernels.h"
#include "device/stream.h"

namespace hvd {

// Of a GPU, or of the host and known to it. Freed when nobody holds it any more; freeing waits for what uses it.
using DeviceMemory = std::shared_ptr<std::byte[]>;

class Device {
 public:
  virtual ~Device() = default;

  virtual int index() const = 0;  // among those this process sees
  // The same in every process of this machine that uses this GPU, and no other GPU's: "GPU-8f2c...".
  virtual const std::string& identity() const = 0;
  virtual const std::string& name() const = 0;  // "NVIDIA H200"
  // False if that GPU is in this process's sight and there is no peer access to it.
  virtual bool reaches(const std::string& identity) const = 0;

  // Makes this GPU the calling thread's current one for good, and lets the thread call while others capture graphs. What the
  // core calls from there is then cheaper, and does not give the GPU that was current a context, some 500 MB of its memory.
  virtual void adopt_thread() = 0;
  // Of the highest priority if `is_urgent`. Lives as long as the device, and goes back to whoever asks next when it is done.
  virtual Stream make_stream(bool is_urgent) = 0;
  virtual void give_back(Stream stream) = 0;
  // What has been given to the stream so far.
  virtual Event record(Stream stream) = 0;
  // Has the stream go on only when the event has come.
  virtual void wait(Stream stream, const Event& event) = 0;
  virtual bool is_done(const Event& event) = 0;
  virtual void synchronize(const Event& event) = 0;  // sleeps until the event has come
  // Milliseconds between two events that have come.
  virtual double milliseconds_between(const Event& begin, const Event& end) = 0;

  virtual DeviceMemory allocate(size_t bytes) = 0;         // of the GPU
  virtual DeviceMemory allocate_pinned(size_t bytes) = 0;  // of the host, for copies that do not wait
  // Pins host memory that somebody else owns, while the result is held. Memory pinned already is left as it is.
  virtual std::shared_ptr<void> pin(void* memory, size_t bytes) = 0;
  // Between any two of GPU and host; with the host's pinned memory it does not wait.
  virtual void copy(Stream stream, void* to, const void* from, size_t bytes) = 0;
  virtual void fill(Stream stream, void* memory, int byte, size_t bytes) = 0;

  virtual DeviceKernels& kernels() = 0;
};

}  // namespace hvd
