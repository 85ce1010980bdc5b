// NCCL's C functions over emulated communicators.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "communicator.h"
#include "injection.h"
#include "sums.h"

using namespace emulated_nccl;
using namespace hvd::nccl;

#define NCCL_API extern "C" __attribute__((visibility("default")))
#define NCCL_ENTER() \
  if (const Result injected = injected_failure(__func__); injected != kSuccess) return refuse(injected, "injected")

namespace {

using Handle = std::shared_ptr<emulated_nccl::Communicator>;

struct Live {
  std::mutex mutex;
  std::map<Comm, Handle> communicators;
};

Live& live() {
  static Live* all = new Live();
  return *all;
}

// Null for a handle that was never made, or was destroyed or aborted.
Handle find(Comm comm) {
  std::lock_guard lock(live().mutex);
  const auto found = live().communicators.find(comm);
  return found == live().communicators.end() ? nullptr : found->second;
}
Handle take(Comm comm) {
  std::lock_guard lock(live().mutex);
  const auto found = live().communicators.find(comm);
  if (found == live().communicators.end()) return nullptr;
  Handle handle = found->second;
  live().communicators.erase(found);
  return handle;
}

thread_local std::string last_error;

Result refuse(Result result, const std::string& why) {
  last_error = why;
  return result;
}

// The thread's calls since ncclGroupStart, by communicator.
struct Group {
  int depth = 0;
  Result error = kSuccess;
  std::map<Comm, Operation> operations;
};
thread_local Group group;

Result submit_all() {
  Result worst = group.error;
  auto operations = std::move(group.operations);
  group.operations.clear();
  group.error = kSuccess;
  if (worst != kSuccess) return worst;
  for (auto& [comm, operation] : operations) {
    const Handle handle = find(comm);
    const Result result = handle == nullptr ? kInvalidArgument : handle->submit(std::move(operation));
    if (result == kInvalidUsage) last_error = "the communicator's last call is still in progress";
    if (result != kSuccess && (worst == kSuccess || worst == kInProgress)) worst = result;
  }
  return worst;
}

bool is_device_memory(const void* memory) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, memory) == cudaSuccess && attributes.type != cudaMemoryTypeUnregistered;
}

// Adds the result of `make` to the group, which consists of this call alone if there is no ncclGroupStart.
template <typename Make>
Result add(Comm comm, cudaStream_t stream, Make make) {
  const Handle handle = find(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  Operation& operation = group.operations[comm];
  operation.stream = stream;
  make(*handle, operation);
  return group.depth > 0 ? kSuccess : submit_all();
}

}  // namespace

namespace {

Result check(Comm comm, const void* memory, size_t count, DataType type, int peer) {
  const Handle handle = find(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  if (size_of(type) == 0) return refuse(kInvalidArgument, "invalid type " + std::to_string(type));
  if (peer < 0 || peer >= handle->size()) return refuse(kInvalidArgument, "invalid rank " + std::to_string(peer));
  if (count != 0 && !is_device_memory(memory)) return refuse(kInvalidArgument, "the memory is not a GPU's");
  return kSuccess;
}

Result remember(Result result) {
  if (group.depth > 0 && group.error == kSuccess) group.error = result;
  return result;
}

Header header_of(Kind kind, size_t count, DataType type, int op, int root) {
  return {static_cast<uint32_t>(kind), static_cast<uint32_t>(type), static_cast<uint32_t>(op), static_cast<uint32_t>(root), count};
}

}  // namespace

NCCL_API Result ncclGetVersion(int* version) {
  *version = claimed_version();
  return kSuccess;
}

NCCL_API const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kUnhandledCudaError:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kInternalError:
      return "internal error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    case kInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

NCCL_API const char* ncclGetLastError(Comm comm) {
  const Handle handle = find(comm);
  const std::string why = handle == nullptr ? "" : handle->why();
  if (!why.empty()) last_error = why;
  return last_error.c_str();
}

NCCL_API Result ncclGetUniqueId(UniqueId* id) {
  NCCL_ENTER();
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/emulated_nccl_%08x%08x%08x", random(), random(), random());
  return kSuccess;
}

NCCL_API Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  *comm = nullptr;
  NCCL_ENTER();
  const bool is_blocking = config == nullptr || config->blocking != 0;
  if (config != nullptr && (config->magic != 0xcafebeef || config->size < 24 || config->version < 21400)) {
    return refuse(kInvalidArgument, "the configuration was not initialised");
  }
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) return refuse(kInvalidArgument, "invalid rank or size");
  Shared* shared = map_shared(id.internal);
  if (shared == nullptr) return refuse(kSystemError, "no shared memory");
  const auto handle = std::make_shared<emulated_nccl::Communicator>(id.internal, shared, rank, size, is_blocking);
  *comm = reinterpret_cast<Comm>(handle.get());
  {
    std::lock_guard lock(live().mutex);
    live().communicators[*comm] = handle;
  }
  handle->join();
  return is_blocking ? handle->state() : kInProgress;
}

NCCL_API Result ncclCommInitRank(Comm* comm, int size, UniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

NCCL_API Result ncclCommGetAsyncError(Comm comm, Result* state) {
  NCCL_ENTER();
  const Handle handle = find(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  *state = handle->state();
  return kSuccess;
}

NCCL_API Result ncclCommFinalize(Comm comm) {
  NCCL_ENTER();
  const Handle handle = find(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  handle->wait_for_operations();
  return handle->state();
}

NCCL_API Result ncclCommDestroy(Comm comm) {
  NCCL_ENTER();
  const Handle handle = take(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  handle->wait_for_operations();
  return kSuccess;
}

NCCL_API Result ncclCommAbort(Comm comm) {
  NCCL_ENTER();
  const Handle handle = take(comm);
  if (handle == nullptr) return refuse(kInvalidArgument, "there is no such communicator");
  handle->abort();
  return kSuccess;
}

NCCL_API Result ncclGroupStart() {
  NCCL_ENTER();
  ++group.depth;
  return kSuccess;
}

NCCL_API Result ncclGroupEnd() {
  if (group.depth == 0) return refuse(kInvalidUsage, "there is no group to end");
  if (--group.depth > 0) return kSuccess;
  NCCL_ENTER();
  return submit_all();
}

NCCL_API Result ncclSend(const void* data, size_t count, DataType type, int peer, Comm comm, cudaStream_t stream) {
  NCCL_ENTER();
  if (const Result wrong = check(comm, data, count, type, peer); wrong != kSuccess) return remember(wrong);
  return add(comm, stream, [&](emulated_nccl::Communicator&, Operation& operation) {
    const Header header = header_of(Kind::kTransfer, count, type, 0, 0);
    operation.messages.push_back({peer, true, const_cast<void*>(data), count * size_of(type), header});
  });
}

NCCL_API Result ncclRecv(void* data, size_t count, DataType type, int peer, Comm comm, cudaStream_t stream) {
  NCCL_ENTER();
  if (const Result wrong = check(comm, data, count, type, peer); wrong != kSuccess) return remember(wrong);
  return add(comm, stream, [&](emulated_nccl::Communicator&, Operation& operation) {
    operation.messages.push_back({peer, false, data, count * size_of(type), header_of(Kind::kTransfer, count, type, 0, 0)});
  });
}

NCCL_API Result ncclBroadcast(const void* source, void* destination, size_t count, DataType type, int root, Comm comm,
                              cudaStream_t stream) {
  NCCL_ENTER();
  if (const Result wrong = check(comm, destination, count, type, root); wrong != kSuccess) return remember(wrong);
  return add(comm, stream, [&](emulated_nccl::Communicator& self, Operation& operation) {
    const Header header = header_of(Kind::kBroadcast, count, type, 0, root);
    const size_t bytes = count * size_of(type);
    if (self.rank() != root) {
      operation.messages.push_back({root, false, destination, bytes, header});
      return;
    }
    for (int peer = 0; peer < self.size(); ++peer) {
      if (peer != root) operation.messages.push_back({peer, true, const_cast<void*>(source), bytes, header});
    }
    operation.afterwards.push_back([source, destination, bytes] { std::memmove(destination, source, bytes); });
  });
}

NCCL_API Result ncclAllReduce(const void* source, void* destination, size_t count, DataType type, RedOp op, Comm comm,
                              cudaStream_t stream) {
  NCCL_ENTER();
  if (op < kSum || op > kMin) return remember(refuse(kInvalidArgument, "invalid reduction " + std::to_string(op)));
  for (const void* memory : {source, static_cast<const void*>(destination)}) {
    if (const Result wrong = check(comm, memory, count, type, 0); wrong != kSuccess) return remember(wrong);
  }
  return add(comm, stream, [&](emulated_nccl::Communicator& self, Operation& operation) {
    const Header header = header_of(Kind::kAllReduce, count, type, op, 0);
    const size_t bytes = count * size_of(type);
    auto received = std::make_shared<std::vector<std::vector<char>>>(self.size());
    std::vector<const void*> contributions;
    for (int peer = 0; peer < self.size(); ++peer) {
      contributions.push_back(source);
      if (peer == self.rank()) continue;
      std::vector<char>& theirs = (*received)[static_cast<size_t>(peer)];
      theirs.resize(bytes);
      contributions.back() = theirs.data();
      operation.messages.push_back({peer, true, const_cast<void*>(source), bytes, header});
      operation.messages.push_back({peer, false, theirs.data(), bytes, header});
    }
    operation.afterwards.push_back([received, contributions, destination, count, type, op] {
      reduce(contributions, destination, count, type, op);
    });
  });
}

// For tests: the number of communicators that this process has made, and neither destroyed nor aborted.
NCCL_API int emulatedNcclCommunicators() {
  std::lock_guard lock(live().mutex);
  return static_cast<int>(live().communicators.size());
}
