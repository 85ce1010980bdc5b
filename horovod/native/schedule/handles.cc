#include "schedule/handles.h"

#include "base/error.h"

namespace hvd {
namespace {

// A caller does not yield while it waits, but sleeps: measured, an engine that has to share its core with a yielding caller
// takes four times as long. Nor does it spin longer than that engine would.
constexpr Patience kCaller{40, std::chrono::microseconds(0)};

[[noreturn]] void refuse(int64_t handle) {
  throw InvalidArgument("handle " + std::to_string(handle) + " is unknown, or has been synchronized already");
}

}  // namespace

int64_t HandleTable::open() {
  MutexLock lock(mutex_);
  entries_.emplace(++last_, Entry());
  return last_;
}

void HandleTable::complete(int64_t handle, Result result) { finish(handle, {true, "", std::move(result)}); }

void HandleTable::fail(int64_t handle, const std::string& error) { finish(handle, {true, error, {}}); }

void HandleTable::finish(int64_t handle, Entry entry) {
  if (handle == 0) return;
  {
    MutexLock lock(mutex_);
    entries_[handle] = std::move(entry);
  }
  advance(finished_);
}

bool HandleTable::has_result(int64_t handle) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) refuse(handle);
  return found->second.is_done;
}

bool HandleTable::is_done(int64_t handle) {
  Device* device;
  Event done;
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) refuse(handle);
    if (!found->second.is_done) return false;
    device = found->second.result.device;
    done = found->second.result.done;
  }
  return device == nullptr || device->is_done(done);
}

std::optional<Result> HandleTable::wait(int64_t handle, std::chrono::microseconds timeout) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    const uint32_t seen = finished_.count.load(std::memory_order_acquire);
    {
      MutexLock lock(mutex_);
      const auto found = entries_.find(handle);
      if (found == entries_.end()) refuse(handle);
      if (found->second.is_done) {
        Entry entry = std::move(found->second);
        entries_.erase(found);
        if (!entry.error.empty()) throw InternalError(entry.error);
        return std::move(entry.result);
      }
    }
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    wait_for_change(finished_, seen, left, kCaller);
  }
}

}  // namespace hvd
