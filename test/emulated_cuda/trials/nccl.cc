// device/communicator.h as C functions, for tests in Python, like device.cc.
#include <cstring>
#include <vector>

#include "attempt.h"
#include "device/device_library.h"

namespace {

using trials::attempt;

hvd::Communicator& of(void* handle) { return *static_cast<hvd::Communicator*>(handle); }

}  // namespace

#define TRIAL extern "C" __attribute__((visibility("default")))

TRIAL int nccl_version() { return hvd::device_library().nccl_version(); }
TRIAL const char* nccl_why_none() {
  thread_local std::string why;
  why = hvd::device_library().why_no_nccl();
  return why.c_str();
}
TRIAL const char* nccl_make_id(char* id) {
  return attempt([&] {
    const hvd::CommunicatorId made = hvd::device_library().make_communicator_id();
    std::memcpy(id, made.data(), made.size());
  });
}
TRIAL const char* nccl_make(int device, void* stream, const char* id, int rank, int size, void** handle) {
  return attempt([&] {
    hvd::CommunicatorId copy;
    std::memcpy(copy.data(), id, copy.size());
    hvd::DeviceLibrary& library = hvd::device_library();
    *handle = library.make_communicator(library.at(device), stream, copy, rank, size, [] {}).release();
  });
}
TRIAL void nccl_destroy(void* handle) { delete &of(handle); }

TRIAL int nccl_serves(void* handle, int dtype) { return of(handle).serves(static_cast<hvd::DType>(dtype)) ? 1 : 0; }
TRIAL const char* nccl_allreduce(void* handle, const void* source, void* destination, int64_t count, int dtype, int op) {
  return attempt([&] {
    of(handle).allreduce(source, destination, count, static_cast<hvd::DType>(dtype), static_cast<hvd::DeviceSum>(op));
  });
}
TRIAL const char* nccl_broadcast(void* handle, void* data, size_t bytes, int root) {
  return attempt([&] { of(handle).broadcast(data, bytes, root); });
}
// Transfers as DeviceTransfer lays them out.
TRIAL const char* nccl_exchange(void* handle, const hvd::DeviceTransfer* out, size_t outs, const hvd::DeviceTransfer* in,
                                size_t ins) {
  return attempt([&] { of(handle).exchange({out, outs}, {in, ins}); });
}
TRIAL const char* nccl_failure(void* handle) {
  thread_local std::string failure;
  failure = of(handle).failure();
  return failure.c_str();
}
TRIAL void nccl_abort(void* handle) { of(handle).abort(); }
