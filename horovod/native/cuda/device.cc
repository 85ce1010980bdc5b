#include "cuda/device.h"

#include <algorithm>

#include "base/error.h"
#include "cuda/kernels/kernels.h"

namespace hvd {
namespace {

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t native(const Event& event) { return static_cast<cudaEvent_t>(event.get()); }

std::string of_bytes(const char* call, size_t bytes) { return std::string(call) + " of " + std::to_string(bytes) + " bytes"; }

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties;
}

// CUDA launches on the thread's current GPU, but kernels/ knows only streams.
class CurrentKernels final : public DeviceKernels {
 public:
  CurrentKernels(int index, std::unique_ptr<DeviceKernels> kernels) : index_(index), kernels_(std::move(kernels)) {}

  void encode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, double prescale,
              std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->encode(stream, codec, dtype, table, prescale, message);
  }
  void decode(Stream stream, const DeviceCodec& codec, DType dtype, PieceTable table, const std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->decode(stream, codec, dtype, table, message);
  }
  void reduce(Stream stream, PieceTable table, const DeviceReduction& reduction) override {
    const CurrentDevice current(index_);
    kernels_->reduce(stream, table, reduction);
  }
  void pack(Stream stream, DType dtype, PieceTable table, double prescale, std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->pack(stream, dtype, table, prescale, message);
  }
  void unpack(Stream stream, DType dtype, PieceTable table, double factor, double divisor, const std::byte* message) override {
    const CurrentDevice current(index_);
    kernels_->unpack(stream, dtype, table, factor, divisor, message);
  }
  int64_t take_saturated() override {
    const CurrentDevice current(index_);
    return kernels_->take_saturated();
  }

 private:
  const int index_;
  const std::unique_ptr<DeviceKernels> kernels_;
};

}  // namespace

std::string identity_of(const cudaDeviceProp& properties) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string identity = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) identity += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    identity += kDigits[byte >> 4];
    identity += kDigits[byte & 15];
  }
  return identity;
}

EventPool::~EventPool() {
  for (cudaEvent_t event : idle_) static_cast<void>(cudaEventDestroy(event));
}

cudaEvent_t EventPool::take() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      cudaEvent_t event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "cudaEventCreateWithFlags");  // waiting threads sleep
  return event;
}

void EventPool::give_back(cudaEvent_t event) {
  MutexLock lock(mutex_);
  idle_.push_back(event);
}

CudaDevice::CudaDevice(int index) : index_(index), events_(std::make_shared<EventPool>()) {
  const cudaDeviceProp properties = properties_of(index_);
  identity_ = identity_of(properties);
  name_ = properties.name;
}

DeviceKernels& CudaDevice::kernels() {
  std::call_once(kernels_made_, [this] {
    const CurrentDevice current(index_);
    kernels_ = kernels_of_gpu(index_, make_device_kernels());
  });
  return *kernels_;
}

void CudaDevice::adopt_thread() {
  check(cudaSetDevice(index_), "cudaSetDevice");
  // In the default mode, querying an event ends the stream capture of another thread.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
}

bool CudaDevice::reaches(const std::string& identity) const {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other < count; ++other) {
    if (other == index_ || identity_of(properties_of(other)) != identity) continue;
    int can_access = 0;
    check(cudaDeviceCanAccessPeer(&can_access, index_, other), "cudaDeviceCanAccessPeer");
    return can_access != 0;
  }
  return true;
}

Stream CudaDevice::make_stream(bool is_urgent) {
  const CurrentDevice current(index_);
  MutexLock lock(streams_mutex_);
  // An idle stream with an error from a failure is skipped.
  auto idle = idle_streams_.begin();
  while (idle != idle_streams_.end() &&
         (is_urgent_[*idle] != is_urgent || asked(cudaStreamQuery(native(*idle))) != cudaSuccess)) {
    ++idle;
  }
  if (idle != idle_streams_.end()) {
    const Stream stream = *idle;
    idle_streams_.erase(idle);
    return stream;
  }
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_urgent ? greatest : least),
        "cudaStreamCreateWithPriority");
  is_urgent_[stream] = is_urgent;
  return stream;
}

void CudaDevice::give_back(Stream stream) {
  MutexLock lock(streams_mutex_);
  idle_streams_.push_back(stream);
}

Event CudaDevice::record(Stream stream) {
  const CurrentDevice current(index_);
  // A new event each time: recording an event again does not change waits that were enqueued on it.
  Event event(events_->take(), [pool = events_](void* held) { pool->give_back(static_cast<cudaEvent_t>(held)); });
  check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord");
  return event;
}

void CudaDevice::wait(Stream stream, const Event& event) {
  if (event == nullptr) return;
  const CurrentDevice current(index_);
  check(cudaStreamWaitEvent(native(stream), native(event), 0), "cudaStreamWaitEvent");
}

bool CudaDevice::is_done(const Event& event) {
  if (event == nullptr) return true;
  const CurrentDevice current(index_);
  const cudaError_t result = asked(cudaEventQuery(native(event)));
  if (result == cudaErrorNotReady) return false;
  check(result, "cudaEventQuery");
  return true;
}

void CudaDevice::synchronize(const Event& event) {
  if (event == nullptr) return;
  const CurrentDevice current(index_);
  check(cudaEventSynchronize(native(event)), "cudaEventSynchronize");
}

double CudaDevice::milliseconds_between(const Event& begin, const Event& end) {
  if (begin == nullptr || end == nullptr) throw InvalidArgument(Said::no_time_between_events);
  const CurrentDevice current(index_);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, native(begin), native(end)), "cudaEventElapsedTime");
  return milliseconds;
}

DeviceMemory CudaDevice::allocate(size_t bytes) {
  const CurrentDevice current(index_);
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
  if (result != cudaSuccess) throw_cuda_error(result, of_bytes("cudaMalloc", bytes));
  return DeviceMemory(static_cast<std::byte*>(memory), [](std::byte* held) {
    static_cast<void>(cudaFree(held));  // fails only if the GPU has failed, which is reported when results are awaited
  });
}

DeviceMemory CudaDevice::allocate_pinned(size_t bytes) {
  const CurrentDevice current(index_);
  void* memory = nullptr;
  const cudaError_t result = cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
  if (result != cudaSuccess) throw_cuda_error(result, of_bytes("cudaHostAlloc", bytes));
  return DeviceMemory(static_cast<std::byte*>(memory), [](std::byte* held) { static_cast<void>(cudaFreeHost(held)); });
}

std::shared_ptr<void> CudaDevice::pin(void* memory, size_t bytes) {
  if (bytes == 0) return nullptr;
  const CurrentDevice current(index_);
  const cudaError_t result = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
  if (result == cudaErrorHostMemoryAlreadyRegistered) {
    cudaGetLastError();
    return nullptr;
  }
  if (result != cudaSuccess) throw_cuda_error(result, of_bytes("cudaHostRegister", bytes));
  return std::shared_ptr<void>(memory, [](void* held) { static_cast<void>(cudaHostUnregister(held)); });
}

void CudaDevice::copy(Stream stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(index_);
  const cudaError_t result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream));
  if (result != cudaSuccess) throw_cuda_error(result, of_bytes("cudaMemcpyAsync", bytes));
}

void CudaDevice::fill(Stream stream, void* memory, int byte, size_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(index_);
  const cudaError_t result = cudaMemsetAsync(memory, byte, bytes, native(stream));
  if (result != cudaSuccess) throw_cuda_error(result, of_bytes("cudaMemsetAsync", bytes));
}

std::unique_ptr<DeviceKernels> kernels_of_gpu(int index, std::unique_ptr<DeviceKernels> kernels) {
  return std::make_unique<CurrentKernels>(index, std::move(kernels));
}

}  // namespace hvd
