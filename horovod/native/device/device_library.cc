#include "device/device_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/mutex.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr char kHowToBuild[] =
    "reinstall it where CUDA's compiler is found, with HOROVOD_WITH_CUDA=1, which says what is missing (docs/gpu.md)";

// State of the process, not of an engine, since a process has one CUDA.
struct Opened {
  Mutex mutex;
  std::string named GUARDED_BY(mutex);  // path; empty: the library beside this one
  DeviceLibrary* library GUARDED_BY(mutex) = nullptr;
};

Opened& opened() {
  static Opened state;
  return state;
}

fs::path library_path(const std::string& named) {
  if (!named.empty()) return named;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&device_library), &info);
  return fs::path(info.dli_fname).parent_path() / "libhorovod_cuda.so";
}

DeviceLibrary* open_library(const fs::path& path) {
  std::error_code ignored;  // exists() returns false on an error
  if (!fs::exists(path, ignored)) {
    throw InvalidArgument(Said::built_without_cuda, {.others = {{"path", path.string()}, {"how_to_build", kHowToBuild}}});
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw InvalidArgument(Said::cuda_part_not_loaded, {.others = {{"why", dlerror()}, {"how_to_build", kHowToBuild}}});
  }
  const auto* built_from = static_cast<const char*>(dlsym(handle, kDeviceInterface));
  if (built_from == nullptr || std::string_view(built_from) != HOROVOD_DEVICE_INTERFACE) {
    throw InvalidArgument(Said::cuda_part_of_other_build, {.others = {{"path", path.string()},
                                                                      {"got", built_from == nullptr ? "unknown" : built_from},
                                                                      {"expected", HOROVOD_DEVICE_INTERFACE},
                                                                      {"how_to_build", kHowToBuild}}});
  }
  const auto open = reinterpret_cast<OpenDeviceLibrary>(dlsym(handle, kOpenDeviceLibrary));
  if (open == nullptr) {
    throw InvalidArgument(Said::cuda_part_damaged, {.others = {{"path", path.string()}, {"symbol", kOpenDeviceLibrary}}});
  }
  std::string error;
  DeviceLibrary* library = open(&error);
  if (library == nullptr) throw InvalidArgument(Said::cuda_does_not_work, {.others = {{"why", error}}});
  return library;
}

}  // namespace

bool device_library_is_installed() {
  Opened& state = opened();
  MutexLock lock(state.mutex);
  std::error_code ignored;
  return fs::exists(library_path(state.named), ignored);
}

DeviceLibrary& device_library() {
  Opened& state = opened();
  MutexLock lock(state.mutex);
  if (state.library == nullptr) state.library = open_library(library_path(state.named));
  return *state.library;
}

void use_device_library(const std::string& path) {
  Opened& state = opened();
  MutexLock lock(state.mutex);
  if (state.library != nullptr && state.named != path) {
    throw InvalidArgument(Said::cuda_part_in_use, {.others = {{"path", path}}});
  }
  state.named = path;
}

}  // namespace hvd
