// GPU memory is host memory with an inaccessible page behind it, and is unmapped when freed: an access beyond its end, or after
// it was freed, crashes as on a GPU. Fresh memory holds 0xA5 in every byte, so that code cannot rely on zeros.
#include "memory.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "state.h"

namespace emulated_cuda {
namespace {

constexpr size_t kAlignment = 256;

struct Block {
  size_t bytes;
  MemoryKind kind;
  bool is_registered;  // pinned, but not allocated here
  int device;
  void* mapping;
  size_t mapped;
};

struct Memory {
  std::mutex mutex;
  std::map<const char*, Block> blocks;  // by address
};

Memory& memory() {
  static Memory* all = new Memory();
  return *all;
}

void* allocate(size_t bytes, MemoryKind kind, int device) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t pages = (rounded + page - 1) / page * page;
  void* mapping = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  if (mprotect(static_cast<char*>(mapping) + pages, page, PROT_NONE) != 0) return nullptr;
  char* start = static_cast<char*>(mapping) + (pages - rounded);
  std::memset(start, 0xA5, rounded);
  ASAN_POISON_MEMORY_REGION(start + bytes, rounded - bytes);  // up to the page behind it
  std::lock_guard lock(memory().mutex);
  memory().blocks[start] = {bytes, kind, false, device, mapping, pages + page};
  return start;
}

void unmap(const Block& block) {
  ASAN_UNPOISON_MEMORY_REGION(block.mapping, block.mapped);
  munmap(block.mapping, block.mapped);
}

// Removes and returns the block at that address, if its kind and its registration match.
bool take(void* address, MemoryKind kind, bool is_registered, Block* block) {
  std::lock_guard lock(memory().mutex);
  const auto found = memory().blocks.find(static_cast<char*>(address));
  if (found == memory().blocks.end() || found->second.kind != kind || found->second.is_registered != is_registered) {
    return false;
  }
  *block = found->second;
  memory().blocks.erase(found);
  return true;
}

bool overlaps(const char* address, size_t bytes) {
  const auto after = memory().blocks.lower_bound(address);
  if (after != memory().blocks.end() && after->first < address + bytes) return true;
  if (after == memory().blocks.begin()) return false;
  const auto before = std::prev(after);
  return before->first + before->second.bytes > address;
}

}  // namespace

bool kind_of(const void* address, size_t bytes, MemoryKind* kind, int* device) {
  // For programs with foreign tensors, such as torch's on the CPU: unknown memory then counts as a GPU's.
  static const bool any_is_device = std::getenv("EMULATED_CUDA_ANY_MEMORY") != nullptr;
  const char* begin = static_cast<const char*>(address);
  *kind = any_is_device ? MemoryKind::kDevice : MemoryKind::kPageable;
  std::lock_guard lock(memory().mutex);
  auto found = memory().blocks.upper_bound(begin);
  if (found == memory().blocks.begin()) return true;
  --found;
  const char* end = found->first + found->second.bytes;
  if (begin >= end) return true;
  *kind = found->second.kind;
  if (device != nullptr) *device = found->second.device;
  // Beyond the end of registered foreign memory the same owner may have more.
  return found->second.is_registered || begin + bytes <= end;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaMalloc(void** address, size_t bytes) {
  EMULATED_CUDA_ENTER();
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  DeviceState& device = current_device_state();
  if (device.used.fetch_add(bytes) + bytes > device.memory) {
    device.used -= bytes;
    return leave(cudaErrorMemoryAllocation);
  }
  *address = allocate(bytes, MemoryKind::kDevice, current_device());
  if (*address == nullptr) device.used -= bytes;
  return leave(*address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* address) {
  EMULATED_CUDA_ENTER();
  if (address == nullptr) return cudaSuccess;
  Block block{};
  if (!take(address, MemoryKind::kDevice, false, &block)) return leave(cudaErrorInvalidValue);
  const int before = current_device();
  cudaSetDevice(block.device);
  const cudaError_t result = cudaDeviceSynchronize();  // like CUDA's
  cudaSetDevice(before);
  devices()[static_cast<size_t>(block.device)].used -= block.bytes;
  unmap(block);
  return leave(result);
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  EMULATED_CUDA_ENTER();
  *address = bytes == 0 ? nullptr : allocate(bytes, MemoryKind::kPinned, current_device());
  return leave(bytes != 0 && *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// Allocated by the process, without registered memory.
EMULATED_CUDA_API size_t emulatedCudaPinnedBytes() {
  std::lock_guard lock(memory().mutex);
  size_t bytes = 0;
  for (const auto& [address, block] : memory().blocks) {
    if (block.kind == MemoryKind::kPinned && !block.is_registered) bytes += block.bytes;
  }
  return bytes;
}

cudaError_t cudaFreeHost(void* address) {
  EMULATED_CUDA_ENTER();
  if (address == nullptr) return cudaSuccess;
  Block block{};
  if (!take(address, MemoryKind::kPinned, false, &block)) return leave(cudaErrorInvalidValue);
  const cudaError_t result = cudaDeviceSynchronize();
  unmap(block);
  return leave(result);
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  EMULATED_CUDA_ENTER();
  if (address == nullptr || bytes == 0) return leave(cudaErrorInvalidValue);
  std::lock_guard lock(memory().mutex);
  if (overlaps(static_cast<char*>(address), bytes)) return leave(cudaErrorHostMemoryAlreadyRegistered);
  memory().blocks[static_cast<char*>(address)] = {bytes, MemoryKind::kPinned, true, current_device(), nullptr, 0};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  EMULATED_CUDA_ENTER();
  Block block{};
  return leave(take(address, MemoryKind::kPinned, true, &block) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  EMULATED_CUDA_ENTER();
  *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
  MemoryKind kind;
  kind_of(address, 1, &kind, &attributes->device);
  void* same = const_cast<void*>(address);
  if (kind == MemoryKind::kDevice) *attributes = {cudaMemoryTypeDevice, attributes->device, same, nullptr};
  if (kind == MemoryKind::kPinned) *attributes = {cudaMemoryTypeHost, attributes->device, same, same};
  return cudaSuccess;
}
