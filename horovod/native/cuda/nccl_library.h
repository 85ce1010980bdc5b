// Finding and opening NCCL, and communicators over it.
#pragma once

#include <memory>
#include <string>

#include "cuda/nccl_api.h"
#include "device/communicator.h"
#include "device/device.h"
#include "device/stream.h"

namespace hvd {

// Opened when made: HOROVOD_NCCL_LIBRARY if it is set, else the one that is in the process already, which is torch's, else
// that of the nvidia-nccl wheel, else the system's. Never closed.
class NcclLibrary {
 public:
  NcclLibrary();

  int version() const { return version_; }              // 0: there is none
  const std::string& why_none() const { return why_; }  // a sentence then
  const std::string& path() const { return path_; }
  const nccl::Functions& functions() const { return functions_; }

  CommunicatorId make_id() const;
  std::unique_ptr<Communicator> make_communicator(Device& device, Stream stream, const CommunicatorId& id, int rank, int size,
                                                  ProgressCallback attend) const;

 private:
  void* open();
  void read_functions(void* handle);

  nccl::Functions functions_;
  int version_ = 0;
  std::string why_;
  std::string path_;
};

// 22809 and 2809 are 2.28.9 and 2.8.9: NCCL has counted in two ways.
std::string nccl_version_text(int version);

}  // namespace hvd
