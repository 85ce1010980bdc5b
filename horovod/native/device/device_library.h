// Finding and opening libhorovod_cuda.so, and what is in it.
#pragma once

#include <memory>
#include <string>

#include "device/communicator.h"
#include "device/device.h"
#include "device/progress_callback.h"

namespace hvd {

class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;

  virtual int count() const = 0;      // GPUs this process sees
  virtual Device& at(int index) = 0;  // made when first asked for, alive to the end. InvalidArgument if there is none

  virtual int nccl_version() = 0;         // NCCL's version code, 22809 for 2.28.9; 0: none
  virtual std::string why_no_nccl() = 0;  // a sentence, if the version is 0
  virtual CommunicatorId make_communicator_id() = 0;
  // Collective over its ranks; waits for all of them. Throws InternalError. `attend`: while this and the communicator's calls
  // wait for peers.
  virtual std::unique_ptr<Communicator> make_communicator(Device& device, Stream stream, const CommunicatorId& id, int rank,
                                                          int size, ProgressCallback attend) = 0;
};

// What the library was built from: a digest of this folder's headers, which this one must have been built from, too. A symbol
// of the library, and what it is to say.
inline constexpr char kDeviceInterface[] = "hvd_device_interface";

// The library's entry point. Owned by the library, one for each process. Null and an error if CUDA does not work here.
using OpenDeviceLibrary = DeviceLibrary* (*)(std::string* error);
inline constexpr char kOpenDeviceLibrary[] = "hvd_open_device_library";

// Whether this package was built with CUDA: the library lies beside this one, or another was named.
bool device_library_is_installed();
// Opens it, once. Throws InvalidArgument that says what is missing and what to do.
DeviceLibrary& device_library();
// For tests: the library to open instead of the one beside this. Before the first call of device_library().
void use_device_library(const std::string& path);

}  // namespace hvd
