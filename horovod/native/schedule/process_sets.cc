#include "schedule/process_sets.h"

#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "schedule/rank_gpu.h"

namespace hvd {

ProcessSets::ProcessSets(const EngineContext& engine) : engine_(engine) {
  std::vector<int> everybody(static_cast<size_t>(engine.transport.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  add(std::move(everybody));
}

ProcessSets::Pointer ProcessSets::find(int id) const {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    throw InvalidArgument(Said::process_set_unknown, {.others = {{"set", id}}});
  }
  return found->second;
}

std::map<int, std::vector<int>> ProcessSets::ranks_by_id() const {
  MutexLock lock(mutex_);
  std::map<int, std::vector<int>> all;
  for (const auto& [id, set] : by_id_) all[id] = set->ranks();
  return all;
}

int ProcessSets::add(std::vector<int> ranks) {
  MutexLock lock(mutex_);
  int id = 0;
  while (by_id_.count(id) != 0) ++id;
  const uint32_t serial = next_serial_++;
  by_id_[id] = by_serial_[serial] = std::make_shared<ProcessSet>(engine_, id, serial, std::move(ranks));
  return id;
}

ProcessSets::Pointer ProcessSets::remove(int id) {
  Pointer set = find(id);
  MutexLock lock(mutex_);
  by_id_.erase(id);
  by_serial_.erase(set->serial());
  return set;
}

// Aborts all communicators at once. To abort one frees its memory, which waits for the GPU, and so for the operations of the
// other communicators.
void ProcessSets::abort_gpu() {
  std::vector<std::thread> threads;
  for (const auto& [serial, set] : by_serial_) {
    if (!set->is_member()) continue;
    threads.emplace_back([this, executor = set->executor()] {
      try {
        executor->abort_gpu();
      } catch (const std::exception& error) {
        HVD_LOG(engine_.log, kError, "what is under way on the GPU could not be ended: " << error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_.gpu.quiesce();  // callers free their tensors after a failure
}

void ProcessSets::close_gpu() {
  for (const auto& [serial, set] : by_serial_) {
    if (set->is_member()) set->executor()->close_gpu();
  }
}

ProcessSets::Pointer ProcessSets::by_serial(uint32_t serial) const {
  const auto found = by_serial_.find(serial);
  return found == by_serial_.end() ? nullptr : found->second;
}

}  // namespace hvd
