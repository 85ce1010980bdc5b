// The engine's events for its listeners. All calls come from the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

struct ObservedOperation {
  std::string name;
  std::string_view operation;  // "ALLREDUCE"
  std::string_view dtype;
  std::string shape;
  std::string route = {}, reason = {};  // of an allreduce that was begun: which way it takes, and why
  std::string settings = {};            // of a change of settings: what is so from here on, one in a line
};

// What a GPU has done of operations that were carried out together.
struct GpuActivity {
  std::string name;
  std::chrono::steady_clock::time_point begin, end;
};
struct GpuWork {
  std::chrono::steady_clock::time_point begin, end;
  std::vector<GpuActivity> activities;  // one after the other
};

class Listener {
 public:
  virtual ~Listener() = default;
  // False while nothing needs to be told.
  virtual bool is_listening() const = 0;
  // On the coordinator: `rank` asked for `name`.
  virtual void on_rank_ready(const std::string& name, std::string_view operation, int rank) = 0;
  // On the coordinator: all ranks have asked.
  virtual void on_agreed(const std::string& name, std::string_view operation) = 0;
  // On the coordinator: all have asked, but not for the same.
  virtual void on_refused(const std::string& name) = 0;
  // On every rank that takes part, around the work itself.
  virtual void on_start(std::span<const ObservedOperation> operations) = 0;
  // In between: the work has come to a new activity, for example "MEMCPY_IN_FUSION_BUFFER".
  virtual void on_activity(std::span<const ObservedOperation> operations, std::string_view activity) = 0;
  virtual void on_finish(std::span<const ObservedOperation> operations) = 0;
  // Instead of all these, of operations on a GPU: what it has done, told when it is past.
  virtual void on_gpu_work(std::span<const ObservedOperation> operations, const GpuWork& work) = 0;
  // Submissions were gathered and announced.
  virtual void on_round() = 0;
  // The engine has nothing to do for now.
  virtual void on_idle() = 0;
};

}  // namespace hvd
