// The process sets of a job: by id for callers, by serial number for the engine's thread, which adds and removes them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "schedule/process_set.h"

namespace hvd {

class ProcessSets {
 public:
  using Pointer = std::shared_ptr<ProcessSet>;

  // Starts with the set of all ranks, which has id 0 and serial 0.
  explicit ProcessSets(const EngineContext& engine);

  // Any thread. Throws InvalidArgument if the id is unknown.
  Pointer find(int id) const EXCLUDES(mutex_);
  // Any thread.
  std::map<int, std::vector<int>> ranks_by_id() const EXCLUDES(mutex_);

  // Engine thread. Returns the id. All ranks add and remove the same sets in the same order, so ids and serials are the same.
  int add(std::vector<int> ranks) EXCLUDES(mutex_);
  Pointer remove(int id) EXCLUDES(mutex_);
  // Engine thread. Null if the set does not exist.
  Pointer by_serial(uint32_t serial) const;
  // Engine thread, after a failure: lets streams continue that wait for operations on the GPU.
  void abort_gpu();
  void close_gpu();
  bool has_existed(uint32_t serial) const { return serial < next_serial_; }
  const std::map<uint32_t, Pointer>& all() const { return by_serial_; }

 private:
  const EngineContext engine_;
  mutable Mutex mutex_;
  std::map<int, Pointer> by_id_ GUARDED_BY(mutex_);
  // Engine thread only.
  std::map<uint32_t, Pointer> by_serial_;
  uint32_t next_serial_ = 0;
};

}  // namespace hvd
