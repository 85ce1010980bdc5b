#include "communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "injection.h"

namespace emulated_nccl {
namespace {

using namespace hvd::nccl;

void pause_a_little(int& idle) {
  if (++idle < 64) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(30));
  }
}

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

int joining_of(const Shared& shared, int size) {
  for (int i = 0; i < size; ++i) {
    if (shared.ranks[i].size != size) return 3;
    for (int j = 0; j < i; ++j) {
      if (std::memcmp(shared.ranks[i].device, shared.ranks[j].device, 16) == 0) return 2;
    }
  }
  return 1;
}

}  // namespace

Communicator::Communicator(std::string name, Shared* shared, int rank, int size, bool is_blocking)
    : name_(std::move(name)), shared_(shared), rank_(rank), size_(size), device_(current_device()), is_blocking_(is_blocking) {}

Communicator::~Communicator() { unmap_shared(shared_); }

void Communicator::join() {
  RankState& own = shared_->ranks[rank_];
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, device_);
  std::memcpy(own.device, properties.uuid.bytes, sizeof own.device);
  own.size = size_;
  if (own.has_joined.exchange(1) != 0) {
    set_error(kInvalidUsage, "rank " + std::to_string(rank_) + " is there twice");
    return;
  }
  if (is_blocking_) {
    wait_for_all();
  } else {
    std::thread([self = shared_from_this()] { self->wait_for_all(); }).detach();
  }
}

// Only rank 0 compares, so that all ranks get the same result.
void Communicator::wait_for_all() {
  int idle = 0;
  for (int joined = 0; joined < size_ && !is_aborted_; pause_a_little(idle)) {
    for (joined = 0; joined < size_ && shared_->ranks[joined].has_joined != 0;) ++joined;
  }
  if (rank_ == 0 && !is_aborted_) {
    shared_->joined = joining_of(*shared_, size_);
    forget_shared(name_);
  }
  while (shared_->joined == 0 && !is_aborted_) pause_a_little(idle);
  if (shared_->joined == 2) set_error(kInvalidUsage, "Duplicate GPU detected: two ranks are on one");
  if (shared_->joined == 3) set_error(kInvalidUsage, "ranks disagree about their number");
  if (shared_->joined == 1) error_ = kSuccess;
}

Result Communicator::submit(Operation operation) {
  shared_->ranks[rank_].has_called = 1;
  if (is_blocking_) return launch(std::move(operation));
  std::lock_guard lock(mutex_);
  if (!pending_.empty()) return kInvalidUsage;  // the previous call has not been waited for
  pending_.push_back(std::move(operation));
  was_asked_ = false;
  return kInProgress;
}

bool Communicator::has_pending() const {
  std::lock_guard lock(mutex_);
  return !pending_.empty();
}

Result Communicator::state() {
  if (const Result error = injected_async_error(rank_, 0); error != kSuccess) set_error(error, "injected");
  if (error_ == kSuccess && a_peer_is_gone() && submitted_ != finished_) {
    set_error(kRemoteError, "a peer has aborted");
  }
  if (error_ != kSuccess) return static_cast<Result>(error_.load());
  std::unique_lock lock(mutex_);
  if (pending_.empty()) return kSuccess;
  if (!std::exchange(was_asked_, true) || (connects_late() && !is_connected(pending_.front()))) return kInProgress;
  Operation operation = std::move(pending_.front());
  pending_.clear();
  lock.unlock();
  return launch(std::move(operation));
}

Result Communicator::launch(Operation operation) {
  struct Task {
    std::shared_ptr<Communicator> self;
    Operation operation;
    uint64_t ticket;
  };
  const cudaStream_t stream = operation.stream;
  auto* task = new Task{shared_from_this(), std::move(operation), submitted_.fetch_add(1)};
  const int before = current_device();
  cudaSetDevice(device_);
  const cudaError_t result = cudaLaunchHostFunc(
      stream,
      [](void* data) {
        const std::unique_ptr<Task> own(static_cast<Task*>(data));
        own->self->run(own->operation, own->ticket);
      },
      task);
  cudaSetDevice(before);
  if (result == cudaSuccess) return kSuccess;
  delete task;
  --submitted_;
  set_error(kUnhandledCudaError, std::string("the stream refused the operation: ") + cudaGetErrorName(result));
  return kUnhandledCudaError;
}

// Runs on the stream's thread. After an error the stream stays here until the communicator is aborted, as on a GPU.
void Communicator::run(Operation& operation, uint64_t ticket) {
  int idle = 0;
  while (finished_ != ticket && !is_aborted_) pause_a_little(idle);
  const Result injected = injected_async_error(rank_, ticket + 1);
  if (injected != kSuccess) set_error(injected, "injected");
  if (injected == kSuccess && !is_aborted_) carry_out(operation);
  while (error_ != kSuccess && !is_aborted_) std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (finished_ == ticket) ++finished_;
}

void Communicator::carry_out(Operation& operation) {
  int idle = 0;
  for (bool is_done = false; !is_done; pause_a_little(idle)) {
    is_done = true;
    bool is_taken[kMostRanks][2] = {};  // messages between two ranks keep their order
    for (Message& message : operation.messages) {
      bool& taken = is_taken[message.peer][message.is_sent ? 1 : 0];
      if (taken || (message.header_done == sizeof(Header) && message.done == message.bytes)) continue;
      if (advance(message)) idle = 0;
      const bool is_whole = message.header_done == sizeof(Header) && message.done == message.bytes;
      taken = !is_whole;
      is_done = is_done && is_whole;
      if (disagrees(message)) {
        set_error(kInvalidUsage, "rank " + std::to_string(message.peer) + " sends " + std::to_string(message.heard.count) +
                                     " elements of operation " + std::to_string(message.heard.operation) +
                                     ", and rank " + std::to_string(rank_) + " expects " +
                                     std::to_string(message.header.count) + " of operation " +
                                     std::to_string(message.header.operation));
      }
    }
    if (is_aborted_ || error_ != kSuccess) return;
  }
  for (const auto& finish : operation.afterwards) finish();
}

// Returns whether some bytes have moved.
bool Communicator::advance(Message& message) {
  const auto ring = [&](int from, int to) -> Ring& { return shared_->rings[from][to]; };
  size_t moved = 0;
  if (message.is_sent) {
    Ring& out = ring(rank_, message.peer);
    const auto* header = reinterpret_cast<const char*>(&message.header);
    message.header_done += moved = out.write(header + message.header_done, sizeof(Header) - message.header_done);
    if (message.header_done != sizeof(Header)) return moved != 0;
    const size_t sent = out.write(static_cast<const char*>(message.data) + message.done, message.bytes - message.done);
    message.done += sent;
    return moved + sent != 0;
  }
  Ring& in = ring(message.peer, rank_);
  auto* header = reinterpret_cast<char*>(&message.heard);
  message.header_done += moved = in.read(header + message.header_done, sizeof(Header) - message.header_done);
  if (message.header_done != sizeof(Header) || disagrees(message)) return moved != 0;
  const size_t received = in.read(static_cast<char*>(message.data) + message.done, message.bytes - message.done);
  message.done += received;
  return moved + received != 0;
}

bool Communicator::disagrees(const Message& message) const {
  return !message.is_sent && message.header_done == sizeof(Header) && message.heard != message.header;
}

bool Communicator::a_peer_is_gone() const {
  for (int i = 0; i < size_; ++i) {
    if (i != rank_ && shared_->ranks[i].is_gone != 0) return true;
  }
  return false;
}

bool Communicator::is_connected(const Operation& operation) const {
  return std::all_of(operation.messages.begin(), operation.messages.end(),
                     [this](const Message& message) { return shared_->ranks[message.peer].has_called != 0; });
}

void Communicator::set_error(Result error, const std::string& why) {
  std::lock_guard lock(mutex_);
  if (error_ != kSuccess && error_ != kInProgress) return;  // the first error counts
  why_ = why;
  error_ = error;
}

std::string Communicator::why() {
  std::lock_guard lock(mutex_);
  return why_;
}

void Communicator::abort() {
  shared_->ranks[rank_].is_gone = 1;
  is_aborted_ = true;
  if (shared_->joined == 0) forget_shared(name_);
}

void Communicator::wait_for_operations() {
  int idle = 0;
  while (has_operations() && error_ == kSuccess) pause_a_little(idle);
}

}  // namespace emulated_nccl
