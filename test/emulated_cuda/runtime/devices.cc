#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "state.h"

namespace emulated_cuda {
namespace {

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

size_t number_from(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<int> visible_devices(int installed) {
  std::vector<int> visible;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < installed; ++i) visible.push_back(i);
    return visible;
  }
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const int index = word.empty() ? -1 : std::atoi(word.c_str());
    if (index < 0 || index >= installed) break;  // like CUDA, ignore all after an invalid one
    visible.push_back(index);
  }
  return visible;
}

// The n-th call of a function fails with that error.
struct Injection {
  size_t call;
  cudaError_t error;
};

struct Injections {
  std::mutex mutex;
  std::map<std::string, Injection> by_function;
  std::map<std::string, size_t> calls;

  Injections() {
    const char* text = std::getenv("EMULATED_CUDA_FAIL");
    std::istringstream words(text == nullptr ? "" : text);
    for (std::string word; std::getline(words, word, ',');) {
      const size_t first = word.find(':'), second = word.find(':', first + 1);
      if (second == std::string::npos) std::abort();  // a test that injects nothing must not pass
      by_function[word.substr(0, first)] = {std::strtoull(word.c_str() + first + 1, nullptr, 10),
                                            static_cast<cudaError_t>(std::atoi(word.c_str() + second + 1))};
    }
  }

  cudaError_t of_this_call(const char* function) {
    if (by_function.empty()) return cudaSuccess;
    std::lock_guard lock(mutex);
    const auto found = by_function.find(function);
    if (found == by_function.end() || ++calls[function] != found->second.call) return cudaSuccess;
    return found->second.error;
  }
};

// Equal for all processes of a host, and different for a made host, which has another host name.
uint64_t host_id() {
  std::string boot, name(256, '\0');
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (gethostname(name.data(), name.size()) != 0) name.clear();
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : boot + name.c_str()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::vector<DeviceState>& devices() {
  static std::vector<DeviceState>* all = [] {
    const auto visible = visible_devices(static_cast<int>(number_from("EMULATED_CUDA_DEVICES", 8)));
    auto* made = new std::vector<DeviceState>(visible.size());
    for (size_t i = 0; i < visible.size(); ++i) {
      (*made)[i].physical = visible[i];
      (*made)[i].memory = number_from("EMULATED_CUDA_MEMORY", size_t{4} << 30);
    }
    return made;
  }();
  return *all;
}

int current_device() { return current; }
DeviceState& current_device_state() { return devices()[static_cast<size_t>(current)]; }

cudaError_t entry(const char* function) {
  static Injections* injections = new Injections();
  if (devices().empty()) return cudaErrorNoDevice;
  current_device_state().has_context = true;
  const cudaError_t injected = injections->of_this_call(function);
  return injected != cudaSuccess ? injected : current_device_state().failure.load();
}

cudaError_t leave(cudaError_t result) {
  if (result != cudaSuccess) last_error = result;
  return result;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(devices().size());
  return leave(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  if (devices().empty()) return leave(cudaErrorNoDevice);
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= static_cast<int>(devices().size())) return leave(cudaErrorInvalidDevice);
  current = device;
  current_device_state().has_context = true;  // as in CUDA since 12.0
  return cudaSuccess;
}
// For tests: whether this process has a context on the GPU, which takes some 500 MB there.
EMULATED_CUDA_API int emulatedCudaHasContext(int device) { return devices()[static_cast<size_t>(device)].has_context ? 1 : 0; }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode of_thread = cudaStreamCaptureModeGlobal;
  std::swap(*mode, of_thread);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= static_cast<int>(devices().size())) return leave(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "Emulated GPU");
  const uint64_t host = host_id();
  const auto physical = static_cast<uint64_t>(devices()[static_cast<size_t>(device)].physical);
  std::memcpy(properties->uuid.bytes, &host, 8);
  std::memcpy(properties->uuid.bytes + 8, &physical, 8);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  const int count = static_cast<int>(devices().size());
  if (device < 0 || device >= count || peer < 0 || peer >= count) return leave(cudaErrorInvalidDevice);
  *can_access = device != peer && number_from("EMULATED_CUDA_PEERS", 1) != 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  EMULATED_CUDA_ENTER();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
