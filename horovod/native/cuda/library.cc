#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "cuda/device.h"
#include "cuda/nccl_library.h"
#include "device/device_library.h"

namespace hvd {
namespace {

class CudaLibrary final : public DeviceLibrary {
 public:
  explicit CudaLibrary(int count) : count_(count), devices_(static_cast<size_t>(count)) {}

  int count() const override { return count_; }

  Device& at(int index) override {
    if (index < 0 || index >= count()) {
      throw InvalidArgument(Said::gpu_unknown, {.others = {{"gpu", index}, {"count", count()}}});
    }
    MutexLock lock(mutex_);
    std::unique_ptr<Device>& device = devices_[static_cast<size_t>(index)];
    if (device == nullptr) device = std::make_unique<CudaDevice>(index);
    return *device;
  }

  int nccl_version() override { return nccl().version(); }
  std::string why_no_nccl() override { return nccl().why_none(); }
  CommunicatorId make_communicator_id() override { return nccl().make_id(); }
  std::unique_ptr<Communicator> make_communicator(Device& device, Stream stream, const CommunicatorId& id, int rank, int size,
                                                  ProgressCallback attend) override {
    return nccl().make_communicator(device, stream, id, rank, size, std::move(attend));
  }

 private:
  // Opened on demand: opening NCCL takes time, and many jobs do not need it.
  const NcclLibrary& nccl() {
    MutexLock lock(mutex_);
    if (nccl_ == nullptr) nccl_ = std::make_unique<NcclLibrary>();
    return *nccl_;
  }

  const int count_;
  Mutex mutex_;
  std::unique_ptr<NcclLibrary> nccl_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Device>> devices_ GUARDED_BY(mutex_);
};

DeviceLibrary* open_library(std::string* error) {
  static Mutex mutex;
  static DeviceLibrary* library GUARDED_BY(mutex) = nullptr;  // never destroyed: at exit the CUDA runtime may end first
  MutexLock lock(mutex);
  if (library != nullptr) return library;
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    *error = result == cudaSuccess ? "this process sees no GPU"
                                   : std::string(cudaGetErrorString(result)) + " (" + cudaGetErrorName(result) + ")";
    *error += "; check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES";
    return nullptr;
  }
  library = std::make_unique<CudaLibrary>(count).release();
  return library;
}

}  // namespace
}  // namespace hvd

extern "C" {
// Declared extern first, because a constant is otherwise local to its file.
extern const char hvd_device_interface[] __attribute__((visibility("default")));
const char hvd_device_interface[] = HOROVOD_DEVICE_INTERFACE;
}

extern "C" __attribute__((visibility("default"))) hvd::DeviceLibrary* hvd_open_device_library(std::string* error) {
  return hvd::open_library(error);
}
