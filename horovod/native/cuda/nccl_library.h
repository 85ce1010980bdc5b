// Finds and opens NCCL, and makes communicators.
#pragma once

#include <memory>
#include <string>

#include "cuda/nccl_api.h"
#include "device/communicator.h"
#include "device/device.h"
#include "device/stream.h"

namespace hvd {

// The constructor opens NCCL, and never closes it: HOROVOD_NCCL_LIBRARY if set, else the library that the process has loaded
// (torch's), else the nvidia-nccl wheel's, else the system's.
class NcclLibrary {
 public:
  NcclLibrary();

  int version() const { return version_; }              // 0: no NCCL
  const std::string& why_none() const { return why_; }  // then a sentence
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

// The text of NCCL's two version formats: 22809 is 2.28.9, and 2809 is 2.8.9.
std::string nccl_version_text(int version);

}  // namespace hvd
