// One GPU through the CUDA runtime.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cuda/runtime.h"
#include "device/device.h"

namespace hvd {

// Equal in every process of the machine, and in NVIDIA's tools: "GPU-8f2c7d1a-...".
std::string identity_of(const cudaDeviceProp& properties);

// A pool of events, because making one takes longer than recording it. Thread-safe.
class EventPool {
 public:
  ~EventPool();
  cudaEvent_t take();  // for the current GPU
  void give_back(cudaEvent_t event);

 private:
  Mutex mutex_;
  std::vector<cudaEvent_t> idle_ GUARDED_BY(mutex_);
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);

  int index() const override { return index_; }
  const std::string& identity() const override { return identity_; }
  const std::string& name() const override { return name_; }
  bool reaches(const std::string& identity) const override;

  void adopt_thread() override;
  Stream make_stream(bool is_urgent) override;
  void give_back(Stream stream) override;
  Event record(Stream stream) override;
  void wait(Stream stream, const Event& event) override;
  bool is_done(const Event& event) override;
  void synchronize(const Event& event) override;
  double milliseconds_between(const Event& begin, const Event& end) override;

  DeviceMemory allocate(size_t bytes) override;
  DeviceMemory allocate_pinned(size_t bytes) override;
  std::shared_ptr<void> pin(void* memory, size_t bytes) override;
  void copy(Stream stream, void* to, const void* from, size_t bytes) override;
  void fill(Stream stream, void* memory, int byte, size_t bytes) override;

  DeviceKernels& kernels() override;

 private:
  const int index_;
  std::string identity_;
  std::string name_;
  Mutex streams_mutex_;
  std::map<Stream, bool> is_urgent_ GUARDED_BY(streams_mutex_);  // of every stream
  std::vector<Stream> idle_streams_ GUARDED_BY(streams_mutex_);  // that were given back
  std::shared_ptr<EventPool> events_;                            // shared with events that outlive this device
  std::once_flag kernels_made_;
  std::unique_ptr<DeviceKernels> kernels_;  // made on demand, because they give the GPU a context
};

// Wraps kernels so that each call makes this GPU the thread's current one.
std::unique_ptr<DeviceKernels> kernels_of_gpu(int index, std::unique_ptr<DeviceKernels> kernels);

}  // namespace hvd
