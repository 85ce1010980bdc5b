// The kernels of DeviceKernels. nvcc compiles these files for GPUs. Other compilers see plain C++, which tests run on an
// emulation of CUDA. So the files include no CUDA header except through cuda/runtime.h.
#pragma once

#include <memory>

#include "device/device_kernels.h"

namespace hvd {

// Makes the kernels for the thread's current GPU, which must also be current in each call.
std::unique_ptr<DeviceKernels> make_device_kernels();

}  // namespace hvd
