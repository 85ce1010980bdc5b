// The kernels behind DeviceKernels. nvcc compiles the files here for GPUs; to any other compiler they are plain C++, which
// runs on an emulation of CUDA in tests. So they include nothing of CUDA's but what cuda/runtime.h brings.
#pragma once

#include <memory>

#include "device/device_kernels.h"

namespace hvd {

// For the thread's current GPU, which is to be the current one at each call too.
std::unique_ptr<DeviceKernels> make_device_kernels();

}  // namespace hvd
