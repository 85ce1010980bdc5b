#include "cuda/nccl_library.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "libnccl.so.2";

fs::path beside_this_library() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&nccl_version_text), &info);
  return fs::path(info.dli_fname).parent_path().parent_path();
}

// Folders of Python packages, by where this library lies and where those lie that the process has mapped.
std::set<fs::path> package_folders() {
  std::set<fs::path> folders = {beside_this_library()};
  constexpr char kMark[] = "/site-packages/";
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/'), mark = line.find(kMark);
    if (mark != std::string::npos && slash < mark + 1) folders.insert(line.substr(slash, mark + sizeof kMark - 2 - slash));
  }
  return folders;
}

std::string file_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : kFile;
}

std::string wheel_for_this_cuda() { return "pip install nvidia-nccl-cu" + std::to_string(CUDART_VERSION / 1000); }

}  // namespace

std::string nccl_version_text(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." + std::to_string(version % 100);
}

NcclLibrary::NcclLibrary() {
  void* handle = open();
  if (handle == nullptr) return;
  read_functions(handle);
  if (!why_.empty()) return;
  int version = 0;
  functions_.get_version(&version);
  if (version < nccl::kOldestVersion) {
    why_ = "NCCL " + nccl_version_text(version) + " (" + path_ + ") is too old, " + nccl_version_text(nccl::kOldestVersion) +
           " is needed: type " + wheel_for_this_cuda() + ", or name another in HOROVOD_NCCL_LIBRARY";
    return;
  }
  version_ = version;
}

void* NcclLibrary::open() {
  const char* named = std::getenv("HOROVOD_NCCL_LIBRARY");
  if (named != nullptr && *named != '\0') {
    path_ = named;
    void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) why_ = std::string("HOROVOD_NCCL_LIBRARY=") + named + " cannot be opened: " + dlerror();
    return handle;
  }
  path_ = kFile;
  if (void* handle = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) return handle;
  std::string reasons;
  for (const fs::path& folder : package_folders()) {
    const fs::path path = folder / "nvidia" / "nccl" / "lib" / kFile;
    std::error_code ignored;  // not there is an answer, not an error
    if (!fs::exists(path, ignored)) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    reasons += std::string("; ") + dlerror();
  }
  if (void* handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL)) return handle;
  why_ = "no NCCL was found: type " + wheel_for_this_cuda() + ", or name the file in HOROVOD_NCCL_LIBRARY" + reasons;
  return nullptr;
}

void NcclLibrary::read_functions(void* handle) {
  const auto find = [&](const char* name) {
    void* function = dlsym(handle, name);
    if (function == nullptr && why_.empty())
      why_ = "the NCCL in " + path_ + " lacks " + name + "; name another in HOROVOD_NCCL_LIBRARY";
    return function;
  };
  if (void* get_version = dlsym(handle, "ncclGetVersion")) path_ = file_of(get_version);
  functions_.get_version = reinterpret_cast<nccl::Result (*)(int*)>(find("ncclGetVersion"));
  functions_.get_error_string = reinterpret_cast<const char* (*)(nccl::Result)>(find("ncclGetErrorString"));
  functions_.get_last_error = reinterpret_cast<const char* (*)(nccl::Comm)>(find("ncclGetLastError"));
#define HVD_FIND(member, name, parameters) functions_.member = reinterpret_cast<decltype(functions_.member)>(find(#name));
  HVD_FOR_EACH_NCCL_FUNCTION(HVD_FIND)
#undef HVD_FIND
}

CommunicatorId NcclLibrary::make_id() const {
  if (version_ == 0) throw InternalError(why_);
  nccl::UniqueId id{};
  const nccl::Result result = functions_.get_unique_id(&id);
  if (result != nccl::kSuccess) {
    throw InternalError(std::string("ncclGetUniqueId failed: ") + functions_.get_error_string(result) + " (" +
                        functions_.get_last_error(nullptr) + ")");
  }
  CommunicatorId copy;
  std::memcpy(copy.data(), id.internal, copy.size());
  return copy;
}

}  // namespace hvd
