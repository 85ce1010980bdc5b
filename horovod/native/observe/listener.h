// What the engine tells those who watch it. All calls come from the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hvd {

struct ObservedOperation {
  std::string name;
  std::string_view operation;  // "ALLREDUCE"
  std::string_view dtype;
  std::string shape;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // On the coordinator: `rank` asked for `name`.
  virtual void on_rank_ready(const std::string& name, std::string_view operation, int rank) = 0;
  // On the coordinator: all ranks have asked.
  virtual void on_agreed(const std::string& name, std::string_view operation) = 0;
  // On every rank, around the work itself; `activity` is what is done, for example "COMMUNICATE".
  virtual void on_start(std::span<const ObservedOperation> operations, std::string_view activity) = 0;
  virtual void on_finish(std::span<const ObservedOperation> operations) = 0;
  // Submissions were gathered and announced.
  virtual void on_round() = 0;
};

}  // namespace hvd
