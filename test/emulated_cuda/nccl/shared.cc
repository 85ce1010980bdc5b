#include "shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace emulated_nccl {

size_t Ring::write(const char* from, size_t bytes) {
  const uint64_t begin = written_.load(std::memory_order_relaxed);
  const size_t free = kBytes - static_cast<size_t>(begin - read_.load(std::memory_order_acquire));
  const size_t count = std::min(bytes, free), place = begin % kBytes, first = std::min(count, kBytes - place);
  std::memcpy(bytes_ + place, from, first);
  std::memcpy(bytes_, from + first, count - first);
  written_.store(begin + count, std::memory_order_release);
  return count;
}

size_t Ring::read(char* to, size_t bytes) {
  const uint64_t begin = read_.load(std::memory_order_relaxed);
  const size_t there = static_cast<size_t>(written_.load(std::memory_order_acquire) - begin);
  const size_t count = std::min(bytes, there), place = begin % kBytes, first = std::min(count, kBytes - place);
  std::memcpy(to, bytes_ + place, first);
  std::memcpy(to + first, bytes_, count - first);
  read_.store(begin + count, std::memory_order_release);
  return count;
}

Shared* map_shared(const std::string& name) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0) return nullptr;
  void* memory = ftruncate(file, sizeof(Shared)) == 0
                     ? mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

void unmap_shared(Shared* shared) { munmap(shared, sizeof(Shared)); }
void forget_shared(const std::string& name) { shm_unlink(name.c_str()); }

}  // namespace emulated_nccl
