// The events that an engine reports to its listeners. All calls come from the engine's thread.
#pragma once

#include <chrono>
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
  std::string route = {}, reason = {};  // allreduce under way: its route, and why it was chosen
  std::string settings = {};            // change of settings: the new values, one a line
};

// A GPU's work on operations that were carried out together.
struct GpuActivity {
  std::string name;
  std::chrono::steady_clock::time_point begin, end;
};
struct GpuWork {
  std::chrono::steady_clock::time_point begin, end;
  std::vector<GpuActivity> activities;  // consecutive
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Whether it currently needs the calls below.
  virtual bool is_listening() const = 0;
  // On the coordinator: `rank` requested `name`.
  virtual void on_rank_ready(const std::string& name, std::string_view operation, int rank) = 0;
  // On the coordinator: all ranks have requested `name`.
  virtual void on_agreed(const std::string& name, std::string_view operation) = 0;
  // On the coordinator: all ranks have requested `name`, and they disagree.
  virtual void on_refused(const std::string& name) = 0;
  // On every rank that takes part: the work begins. on_finish(): it has ended.
  virtual void on_start(std::span<const ObservedOperation> operations) = 0;
  // The work enters a new activity, such as "MEMCPY_IN_FUSION_BUFFER".
  virtual void on_activity(std::span<const ObservedOperation> operations, std::string_view activity) = 0;
  virtual void on_finish(std::span<const ObservedOperation> operations) = 0;
  // For operations on a GPU, instead of on_start() to on_finish(): one call when they are done.
  virtual void on_gpu_work(std::span<const ObservedOperation> operations, const GpuWork& work) = 0;
  // Submissions were announced.
  virtual void on_round() = 0;
  virtual void on_idle() = 0;
};

}  // namespace hvd
