#include <set>
#include <thread>
#include <vector>

#include "memory.h"
#include "stream.h"

namespace emulated_cuda {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> all;
};

Streams& streams() {
  static Streams* known = new Streams();
  return *known;
}

CUstream_st* make_stream(int device) {
  auto* stream = new CUstream_st(device);
  std::lock_guard lock(streams().mutex);
  streams().all.insert(stream);
  return stream;
}

CUstream_st* default_stream() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  DeviceState& state = current_device_state();
  if (state.default_stream == nullptr) state.default_stream = make_stream(current_device());
  return state.default_stream;
}

cudaError_t wait_for(const std::shared_ptr<Moment>& moment) {
  moment->wait();
  return current_device_state().failure.load();
}

}  // namespace

CUstream_st* usable(cudaStream_t stream) {
  if (stream == nullptr) return default_stream();
  std::lock_guard lock(streams().mutex);
  return streams().all.count(stream) != 0 && stream->device == current_device() ? stream : nullptr;
}

void Moment::come() {
  std::lock_guard lock(mutex);
  has_come = true;
  time = std::chrono::steady_clock::now();
  reached.notify_all();
}
void Moment::wait() {
  std::unique_lock lock(mutex);
  reached.wait(lock, [this] { return has_come; });
}
bool Moment::is_there() {
  std::lock_guard lock(mutex);
  return has_come;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

CUstream_st::CUstream_st(int device_index) : device(device_index) { std::thread([this] { run(); }).detach(); }

void CUstream_st::enqueue(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  given_.notify_one();
}

std::shared_ptr<Moment> CUstream_st::mark() {
  auto moment = std::make_shared<Moment>();
  enqueue([moment] { moment->come(); });
  return moment;
}

bool CUstream_st::is_idle() {
  std::lock_guard lock(mutex_);
  return tasks_.empty() && !is_busy_;
}

void CUstream_st::end() {
  std::lock_guard lock(mutex_);
  is_ending_ = true;
  given_.notify_one();
}

void CUstream_st::run() {
  cudaSetDevice(device);
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      is_busy_ = false;
      given_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
      if (tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      is_busy_ = true;
    }
    task();
  }
  delete this;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  EMULATED_CUDA_ENTER();
  if (flags != cudaStreamNonBlocking) return leave(cudaErrorNotSupported);  // it would wait for the default stream
  *stream = make_stream(current_device());
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  if (stream == nullptr || usable(stream) == nullptr) return leave(cudaErrorInvalidResourceHandle);
  {
    std::lock_guard lock(streams().mutex);
    streams().all.erase(stream);
  }
  stream->end();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  return leave(real == nullptr ? cudaErrorInvalidResourceHandle : wait_for(real->mark()));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr) return leave(cudaErrorInvalidResourceHandle);
  return real->is_idle() ? cudaSuccess : leave(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  EMULATED_CUDA_ENTER();
  std::vector<std::shared_ptr<Moment>> marks;
  {
    std::lock_guard lock(streams().mutex);
    for (CUstream_st* stream : streams().all) {
      if (stream->device == current_device()) marks.push_back(stream->mark());
    }
  }
  for (const auto& mark : marks) mark->wait();
  return leave(current_device_state().failure.load());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr || event == nullptr) return leave(cudaErrorInvalidResourceHandle);
  const auto moment = event->now();
  if (moment != nullptr) real->enqueue([moment] { moment->wait(); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr) return leave(cudaErrorInvalidResourceHandle);
  real->enqueue([function, data] { function(data); });
  return cudaSuccess;
}
