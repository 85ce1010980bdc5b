// The memory of GPU tensors' messages.
#pragma once

#include <memory>

#include "collective/device/device_workspace.h"
#include "collective/device/host_workspace.h"
#include "collective/tensor_memory.h"

namespace hvd {

// Messages are in GPU memory: kernels write and read them. Calls only enqueue work. `left_out` and `done` are ignored: begin()
// already determines them, as this rank's bucket if there is no codec.
std::unique_ptr<TensorMemory> make_gpu_tensors(DeviceWorkspace& workspace);

// Messages go through pinned host memory: the GPU encodes, decodes and copies them. Ranks encode their contributions before any
// sum, so a host sums codes. For an allreduce whose residuals of contributions were claimed on the GPU (BucketTensor::sent).
// `prescale` applies to encoded elements.
std::unique_ptr<TensorMemory> make_staged_tensors(HostWorkspace& workspace, double prescale);

}  // namespace hvd
