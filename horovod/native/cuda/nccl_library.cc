#include "cuda/nccl_library.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/time_limits.h"
#include "cuda/runtime.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "libnccl.so.2";

fs::path beside_this_library() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&nccl_version_text), &info);
  return fs::path(info.dli_fname).parent_path().parent_path();
}

// The folders of Python packages, found from this library's path and the process's mapped files.
std::set<fs::path> package_folders() {
  std::set<fs::path> folders = {beside_this_library()};
  constexpr char kMark[] = "/site-packages/";
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/'), mark = line.find(kMark);
    if (mark != std::string::npos && slash < mark + 1) folders.insert(line.substr(slash, mark + sizeof kMark - 2 - slash));
  }
  return folders;
}

std::string file_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : kFile;
}

std::string wheel_for_this_cuda() { return "pip install nvidia-nccl-cu" + std::to_string(CUDART_VERSION / 1000); }

std::optional<nccl::DataType> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return nccl::kUint8;
    case DType::kInt8:
      return nccl::kInt8;
    case DType::kInt32:
      return nccl::kInt32;
    case DType::kInt64:
      return nccl::kInt64;
    case DType::kFloat16:
      return nccl::kFloat16;
    case DType::kFloat32:
      return nccl::kFloat32;
    case DType::kFloat64:
      return nccl::kFloat64;
    case DType::kBFloat16:
      return nccl::kBfloat16;
    default:
      return std::nullopt;
  }
}

nccl::RedOp nccl_op(DeviceSum op) {
  switch (op) {
    case DeviceSum::kProduct:
      return nccl::kProd;
    case DeviceSum::kMin:
      return nccl::kMin;
    case DeviceSum::kMax:
      return nccl::kMax;
    default:
      return nccl::kSum;
  }
}

// A communicator in NCCL's non-blocking mode: no call waits for a peer. So each call can hold the lock, and one thread can
// abort while another waits for a call to settle.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const nccl::Functions& functions, Device& device, Stream stream, int rank, int size, ProgressCallback attend)
      : nccl_(functions),
        device_(device),
        stream_(static_cast<nccl::CudaStream>(stream)),
        rank_(rank),
        size_(size),
        attend_(std::move(attend)) {}
  ~NcclCommunicator() override;

  void start(const CommunicatorId& id);

  bool serves(DType dtype) const override { return nccl_type(dtype).has_value(); }
  void allreduce(const void* source, void* destination, int64_t count, DType dtype, DeviceSum op) override;
  void broadcast(void* data, size_t bytes, int root) override;
  void exchange(std::span<const DeviceTransfer> outgoing, std::span<const DeviceTransfer> incoming) override;
  std::string failure() override;
  void abort() override;

 private:
  template <typename Call>
  void make(const char* name, Call call);
  [[noreturn]] void refuse_aborted(const char* call) const REQUIRES(mutex_);
  // Waits until a call is no longer ncclInProgress: the first call between two ranks stays in progress until both have made it.
  // Releases the lock while it waits.
  void settle(nccl::Result result, const char* name, std::chrono::milliseconds patience = std::chrono::hours(24));
  std::string words(nccl::Result result) REQUIRES(mutex_);
  nccl::Result send_and_receive(std::span<const DeviceTransfer> outgoing, std::span<const DeviceTransfer> incoming,
                                const char** failed) REQUIRES(mutex_);
  void copy_to_self(std::span<const DeviceTransfer> outgoing, std::span<const DeviceTransfer> incoming);
  bool finalize() REQUIRES(mutex_);

  const nccl::Functions& nccl_;
  Device& device_;
  const nccl::CudaStream stream_;
  const int rank_;
  const int size_;
  const ProgressCallback attend_;
  bool is_ready_ = false;  // set before other threads see this object

  Mutex mutex_;
  nccl::Comm comm_ GUARDED_BY(mutex_) = nullptr;  // null after abort
  std::string failure_ GUARDED_BY(mutex_);        // the failure that abort() found
};

constexpr int kYields = 100;  // a call usually settles in microseconds, and a sleep takes longer
constexpr std::chrono::microseconds kPoll{20};

std::string NcclCommunicator::words(nccl::Result result) {
  const char* last = nccl_.get_last_error(comm_);
  std::string text = nccl_.get_error_string(result);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

void NcclCommunicator::refuse_aborted(const char* call) const {
  throw InternalError(Said::nccl_aborted,
                      {.ranks = {rank_}, .others = {{"call", call}, {"because", failure_.empty() ? "" : ": " + failure_}}});
}

void NcclCommunicator::settle(nccl::Result result, const char* name, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int asked_before = 0;; ++asked_before) {
    {
      MutexLock lock(mutex_);
      if (comm_ == nullptr) refuse_aborted(name);
      if (std::chrono::steady_clock::now() > deadline) {
        throw InternalError(Said::nccl_ranks_absent,
                            {.ranks = {rank_}, .others = {{"call", name}, {"size", size_}, {"seconds", patience.count()}}});
      }
      if (result == nccl::kInProgress) {
        const nccl::Result asked = nccl_.comm_get_async_error(comm_, &result);
        if (asked != nccl::kSuccess) result = asked;
      }
      if (result == nccl::kSuccess) return;
      if (result != nccl::kInProgress) {
        const std::string gpu = " (" + device_.name() + ", GPU " + std::to_string(device_.index()) + ")";
        throw InternalError(Said::nccl_failed,
                            {.ranks = {rank_}, .others = {{"call", name}, {"gpu", gpu}, {"why", words(result)}}});
      }
    }
    if (asked_before < kYields) {
      std::this_thread::yield();
    } else {
      attend_();  // throws if a peer was lost, which NCCL may not report
      std::this_thread::sleep_for(kPoll);
    }
  }
}

template <typename Call>
void NcclCommunicator::make(const char* name, Call call) {
  nccl::Result result;
  {
    const CurrentDevice current(device_.index());
    MutexLock lock(mutex_);
    if (comm_ == nullptr) refuse_aborted(name);
    result = call(comm_);
  }
  settle(result, name);
}

void NcclCommunicator::start(const CommunicatorId& id) {
  nccl::UniqueId unique{};
  std::memcpy(unique.internal, id.data(), id.size());
  nccl::Config config;
  config.blocking = 0;
  nccl::Result result;
  {
    const CurrentDevice current(device_.index());
    MutexLock lock(mutex_);
    result = nccl_.comm_init_rank_config(&comm_, size_, unique, rank_, &config);
    if (comm_ == nullptr && (result == nccl::kSuccess || result == nccl::kInProgress)) result = nccl::kInternalError;
    if (comm_ == nullptr) {
      throw InternalError(
          Said::nccl_failed,
          {.ranks = {rank_}, .others = {{"call", "ncclCommInitRankConfig"}, {"gpu", ""}, {"why", words(result)}}});
    }
  }
  settle(result, "ncclCommInitRankConfig", time_limits::kNcclStart);
  is_ready_ = true;
}

void NcclCommunicator::allreduce(const void* source, void* destination, int64_t count, DType dtype, DeviceSum op) {
  const auto type = nccl_type(dtype);
  if (!type) throw InvalidArgument(Said::nccl_dtype, {.others = {{"dtype", std::string(name_of(dtype))}}});
  if (count == 0) return;
  make("ncclAllReduce", [&](nccl::Comm comm) {
    return nccl_.all_reduce(source, destination, static_cast<size_t>(count), *type, nccl_op(op), comm, stream_);
  });
}

void NcclCommunicator::broadcast(void* data, size_t bytes, int root) {
  if (bytes == 0) return;
  make("ncclBroadcast", [&](nccl::Comm comm) { return nccl_.broadcast(data, data, bytes, nccl::kUint8, root, comm, stream_); });
}

void NcclCommunicator::exchange(std::span<const DeviceTransfer> outgoing, std::span<const DeviceTransfer> incoming) {
  copy_to_self(outgoing, incoming);
  const auto crosses = [this](const DeviceTransfer& transfer) { return transfer.peer != rank_ && transfer.bytes != 0; };
  if (std::none_of(outgoing.begin(), outgoing.end(), crosses) && std::none_of(incoming.begin(), incoming.end(), crosses)) {
    return;
  }
  const char* failed = "ncclGroupEnd";
  nccl::Result result;
  {
    const CurrentDevice current(device_.index());
    MutexLock lock(mutex_);
    if (comm_ == nullptr) refuse_aborted("ncclGroupStart");
    result = send_and_receive(outgoing, incoming, &failed);
  }
  settle(result, failed);
}

// Makes one NCCL group. It must be ended even if a call has failed, because the thread would stay in it.
nccl::Result NcclCommunicator::send_and_receive(std::span<const DeviceTransfer> outgoing,
                                                std::span<const DeviceTransfer> incoming, const char** failed) {
  nccl::Result first = nccl_.group_start();
  if (first != nccl::kSuccess) {
    *failed = "ncclGroupStart";
    return first;
  }
  const auto note = [&](nccl::Result result, const char* name) {
    const bool is_fine = result == nccl::kSuccess || result == nccl::kInProgress;
    if (is_fine || first != nccl::kSuccess) return;
    first = result;
    *failed = name;
  };
  for (const DeviceTransfer& out : outgoing) {
    if (out.peer == rank_ || out.bytes == 0) continue;
    note(nccl_.send(out.data, out.bytes, nccl::kUint8, out.peer, comm_, stream_), "ncclSend");
  }
  for (const DeviceTransfer& in : incoming) {
    if (in.peer == rank_ || in.bytes == 0) continue;
    note(nccl_.recv(in.data, in.bytes, nccl::kUint8, in.peer, comm_, stream_), "ncclRecv");
  }
  const nccl::Result ended = nccl_.group_end();
  return first == nccl::kSuccess ? ended : first;
}

void NcclCommunicator::copy_to_self(std::span<const DeviceTransfer> outgoing, std::span<const DeviceTransfer> incoming) {
  std::vector<DeviceTransfer> sent, received;
  for (const DeviceTransfer& out : outgoing) {
    if (out.peer == rank_) sent.push_back(out);
  }
  for (const DeviceTransfer& in : incoming) {
    if (in.peer == rank_) received.push_back(in);
  }
  bool is_alike = sent.size() == received.size();
  for (size_t i = 0; is_alike && i < sent.size(); ++i) is_alike = sent[i].bytes == received[i].bytes;
  if (!is_alike) throw InvalidArgument(Said::nccl_self_differs);
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].data != received[i].data) device_.copy(stream_, received[i].data, sent[i].data, sent[i].bytes);
  }
}

std::string NcclCommunicator::failure() {
  {
    MutexLock lock(mutex_);
    if (comm_ == nullptr) return failure_.empty() ? "the communicator was aborted" : failure_;
    nccl::Result state = nccl::kSuccess;
    const nccl::Result asked = nccl_.comm_get_async_error(comm_, &state);
    const nccl::Result worst = asked != nccl::kSuccess ? asked : state;
    if (worst != nccl::kSuccess && worst != nccl::kInProgress) return "NCCL: " + words(worst);
  }
  const CurrentDevice current(device_.index());
  const cudaError_t result = asked(cudaStreamQuery(stream_));
  if (result == cudaSuccess || result == cudaErrorNotReady) return "";
  return "GPU " + std::to_string(device_.index()) + " (" + device_.name() + "): " + cudaGetErrorString(result) + " (" +
         cudaGetErrorName(result) + ")";
}

void NcclCommunicator::abort() {
  std::string found = failure();
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  failure_ = std::move(found);
  static_cast<void>(nccl_.comm_abort(comm_));  // the communicator is gone whatever it returns
  comm_ = nullptr;
}

// Returns whether NCCL has completed all work, and the peers know.
bool NcclCommunicator::finalize() {
  nccl::Result result = nccl_.comm_finalize(comm_);
  const auto deadline = std::chrono::steady_clock::now() + time_limits::kNcclEnd;
  while (result == nccl::kInProgress && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    const nccl::Result asked = nccl_.comm_get_async_error(comm_, &result);
    if (asked != nccl::kSuccess) result = asked;
  }
  return result == nccl::kSuccess;
}

NcclCommunicator::~NcclCommunicator() {
  MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  const bool is_done = is_ready_ && finalize();
  static_cast<void>(is_done ? nccl_.comm_destroy(comm_) : nccl_.comm_abort(comm_));
}

}  // namespace

std::string nccl_version_text(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." + std::to_string(version % 100);
}

NcclLibrary::NcclLibrary() {
  void* handle = open();
  if (handle == nullptr) return;
  read_functions(handle);
  if (!why_.empty()) return;
  int version = 0;
  functions_.get_version(&version);
  if (version < nccl::kOldestVersion) {
    why_ = "NCCL " + nccl_version_text(version) + " (" + path_ + ") is too old, " + nccl_version_text(nccl::kOldestVersion) +
           " is needed: type " + wheel_for_this_cuda() + ", or name another in HOROVOD_NCCL_LIBRARY";
    return;
  }
  version_ = version;
}

void* NcclLibrary::open() {
  const char* named = std::getenv("HOROVOD_NCCL_LIBRARY");
  if (named != nullptr && *named != '\0') {
    path_ = named;
    void* handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) why_ = std::string("HOROVOD_NCCL_LIBRARY=") + named + " cannot be opened: " + dlerror();
    return handle;
  }
  path_ = kFile;
  if (void* handle = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) return handle;
  std::string reasons;
  for (const fs::path& folder : package_folders()) {
    const fs::path path = folder / "nvidia" / "nccl" / "lib" / kFile;
    std::error_code ignored;  // a missing path is not an error
    if (!fs::exists(path, ignored)) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    reasons += std::string("; ") + dlerror();
  }
  if (void* handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL)) return handle;
  why_ = "no NCCL was found: type " + wheel_for_this_cuda() + ", or name the file in HOROVOD_NCCL_LIBRARY" + reasons;
  return nullptr;
}

void NcclLibrary::read_functions(void* handle) {
  const auto find = [&](const char* name) {
    void* function = dlsym(handle, name);
    if (function == nullptr && why_.empty())
      why_ = "the NCCL in " + path_ + " lacks " + name + "; name another in HOROVOD_NCCL_LIBRARY";
    return function;
  };
  if (void* get_version = dlsym(handle, "ncclGetVersion")) path_ = file_of(get_version);
  functions_.get_version = reinterpret_cast<nccl::Result (*)(int*)>(find("ncclGetVersion"));
  functions_.get_error_string = reinterpret_cast<const char* (*)(nccl::Result)>(find("ncclGetErrorString"));
  functions_.get_last_error = reinterpret_cast<const char* (*)(nccl::Comm)>(find("ncclGetLastError"));
#define HVD_FIND(member, name, parameters) functions_.member = reinterpret_cast<decltype(functions_.member)>(find(#name));
  HVD_FOR_EACH_NCCL_FUNCTION(HVD_FIND)
#undef HVD_FIND
}

CommunicatorId NcclLibrary::make_id() const {
  if (version_ == 0) throw InternalError(Said::gpu_failed, {.others = {{"why", why_}}});
  nccl::UniqueId id{};
  const nccl::Result result = functions_.get_unique_id(&id);
  if (result != nccl::kSuccess) {
    const std::string why = std::string(functions_.get_error_string(result)) + " (" + functions_.get_last_error(nullptr) + ")";
    throw InternalError(Said::nccl_failed, {.ranks = {0}, .others = {{"call", "ncclGetUniqueId"}, {"gpu", ""}, {"why", why}}});
  }
  CommunicatorId copy;
  std::memcpy(copy.data(), id.internal, copy.size());
  return copy;
}

std::unique_ptr<Communicator> NcclLibrary::make_communicator(Device& device, Stream stream, const CommunicatorId& id, int rank,
                                                             int size, ProgressCallback attend) const {
  if (version_ == 0) throw InternalError(Said::gpu_failed, {.others = {{"why", why_}}});
  auto communicator = std::make_unique<NcclCommunicator>(functions_, device, stream, rank, size, std::move(attend));
  communicator->start(id);
  return communicator;
}

}  // namespace hvd
