#include "block.h"

#include <bit>

namespace emulated_cuda {

std::string Block::run(const std::function<void()>& one_thread, dim3 block, dim3 block_size, size_t shared_bytes) {
  one_thread_ = &one_thread;
  shared_.assign(shared_bytes, std::byte{0xA5});
  error_.clear();
  prepare(block, block_size);
  warp_ = 0;
  go_on_elsewhere(caller_);
  if (error_.empty() && gone_ != threads_) {
    error_ = std::to_string(threads_ - gone_) + " threads of a block wait for others that never come";
  }
  return error_;
}

void Block::prepare(dim3 block, dim3 block_size) {
  threads_ = static_cast<int>(block_size.x);
  gone_ = came_ = 0;
  warp_count_ = (static_cast<size_t>(threads_) + 31) / 32;
  if (warps_.size() < warp_count_) warps_.resize(warp_count_);
  while (stacks_.size() < static_cast<size_t>(threads_)) stacks_.push_back(std::make_unique<Stack>());
  for (int thread = 0; thread < threads_; ++thread) {
    Warp& warp = warps_[static_cast<size_t>(thread) / 32];
    if (thread % 32 == 0) {
      const int lanes = std::min(32, threads_ - thread);
      warp.existing = warp.ready = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
      warp.meeting = warp.at_barrier = warp.gone = 0;
    }
    Lane& lane = warp.lanes[thread % 32];
    lane.where = {static_cast<unsigned>(thread), block, block_size};
    lane.fiber.prepare(*stacks_[static_cast<size_t>(thread)], &Block::enter);
  }
}

void Block::enter() {
  Block& block = *running;
  (*block.one_thread_)();
  block.leave();
}

// Switches to the next lane of the warp that can run, else to another warp's; to the caller if none can.
void Block::go_on_elsewhere(Fiber& from) {
  for (size_t tried = 0; tried < warp_count_; ++tried) {
    Warp& warp = warps_[warp_];
    if (warp.ready != 0) {
      const int turn = tried == 0 ? lane_number_ : 0;
      const int lane = (std::countr_zero(std::rotr(warp.ready, turn)) + turn) & 31;
      lane_number_ = lane;
      lane_ = &warp.lanes[lane];
      if (&lane_->fiber != &from) switch_fibers(from, lane_->fiber);
      return;
    }
    warp_ = warp_ + 1 == warp_count_ ? 0 : warp_ + 1;
  }
  if (&from != &caller_) switch_fibers(from, caller_);
}

void Block::leave() {
  Warp& warp = warps_[warp_];
  warp.gone |= 1u << lane_number_;
  warp.ready &= ~(1u << lane_number_);
  ++gone_;
  // The lanes that wait for this one wait no longer.
  for (unsigned waiting = warp.meeting; waiting != 0;) {
    const unsigned mask = warp.lanes[std::countr_zero(waiting)].mask;
    waiting &= ~mask;
    if ((warp.meeting & mask) == (mask & warp.existing & ~warp.gone)) complete_meeting(warp, mask);
  }
  release_barrier_if_all_came();
  go_on_elsewhere(lane_->fiber);
}

void Block::fail(const std::string& why) {
  error_ = why;
  switch_fibers(lane_->fiber, caller_);  // does not return
}

void Block::barrier() {
  Warp& warp = warps_[warp_];
  const unsigned bit = 1u << lane_number_;
  warp.at_barrier |= bit;
  warp.ready &= ~bit;
  ++came_;
  release_barrier_if_all_came();
  go_on_elsewhere(lane_->fiber);
}

void Block::release_barrier_if_all_came() {
  if (came_ == 0 || came_ + gone_ < threads_) return;
  for (size_t i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    warp.ready |= warp.at_barrier;
    warp.at_barrier = 0;
  }
  came_ = 0;
}

}  // namespace emulated_cuda
