// A stream of bytes from one rank to another through memory they share: one writer, one reader, neither ever waits here.
//
// The control block and the bytes lie in shared memory; a Ring object is one side's view of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd {

struct RingControl {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
};

class Ring {
 public:
  Ring() = default;
  // `capacity` is a power of two.
  Ring(RingControl* control, std::byte* bytes, size_t capacity) : control_(control), bytes_(bytes), capacity_(capacity) {}

  // Copies as much as fits or is there, and returns how much that was.
  size_t write(const void* data, size_t bytes);
  size_t read(void* data, size_t bytes);
  size_t readable() const;

 private:
  RingControl* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace hvd
