#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "block.h"
#include "stream.h"

namespace emulated_cuda {

const Coordinates& here() { return running->here(); }
std::byte* dynamic_shared() { return running->shared(); }
uint64_t meet(Meeting operation, unsigned mask, uint64_t value, int lane) {
  return running->meet(operation, mask, value, lane);
}
int own_lane() { return running->lane_number(); }
void block_barrier() { running->barrier(); }

namespace {

// A block with its stacks, for the next stream that launches: streams live as long as the process, and each stack takes two of
// the mappings that a process may have.
class LentBlock {
 public:
  LentBlock() {
    std::lock_guard lock(mutex());
    if (!idle().empty()) {
      block_ = std::move(idle().back());
      idle().pop_back();
    }
    if (block_ == nullptr) block_ = std::make_unique<Block>();
  }
  ~LentBlock() {
    std::lock_guard lock(mutex());
    idle().push_back(std::move(block_));
  }
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;
  Block* get() const { return block_.get(); }

 private:
  // Never destroyed, because streams' threads may run until the process ends.
  static std::mutex& mutex() {
    static auto& all = *new std::mutex;
    return all;
  }
  static std::vector<std::unique_ptr<Block>>& idle() {
    static auto& all = *new std::vector<std::unique_ptr<Block>>;
    return all;
  }
  std::unique_ptr<Block> block_;
};

void run_grid(const std::function<void()>& one_thread, dim3 grid, dim3 block, size_t shared_bytes) {
  const LentBlock own;
  running = own.get();
  std::atomic<cudaError_t>& failure = current_device_state().failure;
  for (unsigned number = 0; number < grid.x && failure == cudaSuccess; ++number) {
    const std::string error = running->run(one_thread, number, block, shared_bytes);
    if (error.empty()) continue;
    std::fprintf(stderr, "emulated CUDA: block %u failed: %s\n", number, error.c_str());
    failure = cudaErrorLaunchFailure;
  }
}

bool is_possible(dim3 grid, dim3 block, size_t shared_bytes) {
  return block.x >= 1 && block.x <= 1024 && grid.x >= 1 && grid.x <= 0x7fffffff && shared_bytes <= (227 << 10);
}

}  // namespace

cudaError_t launch_kernel(std::function<void()> one_thread, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  if (const cudaError_t refused = entry("cudaLaunchKernel"); refused != cudaSuccess) return leave(refused);
  CUstream_st* real = usable(stream);
  if (real == nullptr) return leave(cudaErrorInvalidResourceHandle);
  if (!is_possible(grid, block, shared_bytes)) return leave(cudaErrorInvalidConfiguration);
  real->enqueue([one_thread = std::move(one_thread), grid, block, shared_bytes] {
    run_grid(one_thread, grid, block, shared_bytes);
  });
  return cudaSuccess;
}

}  // namespace emulated_cuda
