// An emulated communicator: the state behind its handle, and its operations on streams.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/nccl_api.h"
#include "cuda_runtime.h"
#include "shared.h"

namespace emulated_nccl {

using hvd::nccl::Result;

// The fields on which both ends of a message must agree.
struct Header {
  uint32_t operation;  // Kind
  uint32_t type;
  uint32_t op;
  uint32_t root;
  uint64_t count;
  bool operator==(const Header&) const = default;
};
enum class Kind : uint32_t { kTransfer = 1, kAllReduce, kBroadcast };

struct Message {
  int peer;
  bool is_sent;
  void* data;
  size_t bytes;
  Header header;
  // The progress of the message.
  Header heard{};
  size_t header_done = 0, done = 0;
};

// A collective or a group: messages, and the work to do when all have arrived.
struct Operation {
  std::vector<Message> messages;
  std::vector<std::function<void()>> afterwards;
  cudaStream_t stream = nullptr;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(std::string name, Shared* shared, int rank, int size, bool is_blocking);
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  void join();  // begins; in blocking mode also waits for all ranks
  // Runs on the stream, after all earlier submissions. Non-blocking: only after a query of the state.
  Result submit(Operation operation);
  Result state();  // the result of ncclCommGetAsyncError
  void abort();
  void wait_for_operations();
  bool has_operations() const { return submitted_ != finished_ || has_pending(); }
  void set_error(Result error, const std::string& why);
  std::string why();

 private:
  void wait_for_all();
  bool has_pending() const;
  Result launch(Operation operation);
  void run(Operation& operation, uint64_t ticket);
  void carry_out(Operation& operation);
  bool advance(Message& message);
  bool disagrees(const Message& message) const;
  bool a_peer_is_gone() const;
  bool is_connected(const Operation& operation) const;

  const std::string name_;
  Shared* const shared_;
  const int rank_, size_, device_;
  const bool is_blocking_;
  std::atomic<bool> is_aborted_{false};
  std::atomic<int> error_{hvd::nccl::kInProgress};  // kSuccess when all have joined
  std::atomic<uint64_t> submitted_{0}, finished_{0};

  mutable std::mutex mutex_;
  std::deque<Operation> pending_;  // guarded by mutex_, and the next two
  bool was_asked_ = false;
  std::string why_;
};

}  // namespace emulated_nccl
