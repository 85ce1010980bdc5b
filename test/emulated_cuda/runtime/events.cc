#include "stream.h"

using namespace emulated_cuda;

std::shared_ptr<Moment> CUevent_st::now() {
  std::lock_guard lock(mutex);
  return moment;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  EMULATED_CUDA_ENTER();
  *event = new CUevent_st();
  (*event)->device = current_device();
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  EMULATED_CUDA_ENTER();
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  EMULATED_CUDA_ENTER();
  CUstream_st* real = usable(stream);
  if (real == nullptr || event == nullptr || event->device != real->device) return leave(cudaErrorInvalidResourceHandle);
  auto moment = real->mark();
  std::lock_guard lock(event->mutex);
  event->moment = std::move(moment);
  return cudaSuccess;
}

// An event that was never recorded counts as complete.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  EMULATED_CUDA_ENTER();
  if (event == nullptr) return leave(cudaErrorInvalidResourceHandle);
  const auto moment = event->now();
  return moment == nullptr || moment->is_there() ? cudaSuccess : leave(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_CUDA_ENTER();
  if (event == nullptr) return leave(cudaErrorInvalidResourceHandle);
  const auto moment = event->now();
  if (moment != nullptr) moment->wait();
  return leave(current_device_state().failure.load());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  EMULATED_CUDA_ENTER();
  if (begin == nullptr || end == nullptr || !begin->has_time || !end->has_time) {
    return leave(cudaErrorInvalidResourceHandle);
  }
  const auto first = begin->now(), last = end->now();
  if (first == nullptr || last == nullptr) return leave(cudaErrorInvalidResourceHandle);
  if (!first->is_there() || !last->is_there()) return leave(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(last->time - first->time).count();
  return cudaSuccess;
}
