// Carried reductions (collective/carried.h) of tensors and messages in a GPU's memory. Every call enqueues its kernels on
// the caller's stream and returns: what it reads and writes is in use until the stream has come past it. Finite values
// that a codec's range cut off are counted by the GPU's kernels, for all that uses it together: saturated() is 0 here.
#pragma once

#include <memory>
#include <vector>

#include "collective/carried.h"
#include "device/device.h"

namespace hvd {

// Whether kernels sum so many ranks' contributions in rank order; the rest the two functions below do not serve.
bool gpu_can_carry(const BucketReduction& reduction, int size);

// Claims feedback, as slices_of() does.
std::unique_ptr<Carried> device_carried_allreduce(const std::vector<CarriedPart>& parts, const CarriedPlace& place,
                                                  int64_t step_elements, Device& device, Stream stream);
std::unique_ptr<Carried> device_carried_reducescatter(const BucketReduction& reduction, const BucketTensor& tensor,
                                                      const CarriedPlace& place, Device& device, Stream stream);

}  // namespace hvd
