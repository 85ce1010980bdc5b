// A block of a running launch: its threads as coroutines, in warps of 32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "cuda_runtime.h"

namespace emulated_cuda {

struct Lane {
  Fiber fiber;
  Coordinates where{0, 0, 0};
  Meeting operation;
  unsigned mask;
  uint64_t value;   // this lane's value for the others
  int source;       // the lane whose value is read
  uint64_t result;
};

struct Warp {
  Lane lanes[32];
  unsigned existing = 0;  // lanes of the block
  unsigned ready = 0;     // lanes that can run
  unsigned meeting = 0;   // lanes that wait for lanes of their mask
  unsigned at_barrier = 0;
  unsigned gone = 0;      // lanes that have returned
};

class Block {
 public:
  // Runs one block after the other, all with the same function. Each stream's thread keeps it, for its stacks. Returns the
  // error, or "".
  std::string run(const std::function<void()>& one_thread, dim3 block, dim3 block_size, size_t shared_bytes);

  // For the running coroutine:
  const Coordinates& here() const { return lane_->where; }
  std::byte* shared() { return shared_.data(); }
  int lane_number() const { return lane_number_; }
  uint64_t meet(Meeting operation, unsigned mask, uint64_t value, int source);
  void barrier();

 private:
  static void enter();  // the function of every coroutine
  void prepare(dim3 block, dim3 block_size);
  void leave();
  void go_on_elsewhere(Fiber& from);
  void complete_meeting(Warp& warp, unsigned mask);
  void release_barrier_if_all_came();
  void fail(const std::string& why);

  const std::function<void()>* one_thread_ = nullptr;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<std::byte> shared_;
  Fiber caller_;
  size_t warp_count_ = 0;
  size_t warp_ = 0;  // of the running coroutine, and the next three too
  int lane_number_ = 0;
  Lane* lane_ = nullptr;
  int threads_ = 0, gone_ = 0, came_ = 0;
  std::string error_;
};

// The block that this thread of the CPU runs.
inline thread_local Block* running __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace emulated_cuda
