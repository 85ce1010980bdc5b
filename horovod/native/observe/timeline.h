// A Chrome trace of every operation: open it in Perfetto or chrome://tracing.
//
//   file  := "[" event ("," event)* "]"     valid JSON after every write: the closing bracket is overwritten by the next
//   event := process_name metadata | B | E | X | i
//
// One trace "process" for each tensor name. Written on rank 0 by the engine thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>

#include "observe/listener.h"

namespace hvd {

class Timeline final : public Listener {
 public:
  // Throws InvalidArgument when the file cannot be written.
  Timeline(const std::string& path, bool mark_cycles);

  void on_rank_ready(const std::string& name, std::string_view operation, int rank) override;
  void on_agreed(const std::string& name, std::string_view operation) override;
  void on_start(std::span<const ObservedOperation> operations, std::string_view activity) override;
  void on_finish(std::span<const ObservedOperation> operations) override;
  void on_round() override;

 private:
  int process_of(const std::string& name);
  void event(int process, char phase, std::string_view name, const std::string& rest);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const bool mark_cycles_;
  const std::chrono::steady_clock::time_point start_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::unordered_map<std::string, int> processes_;
  std::unordered_map<std::string, bool> negotiating_;
  bool is_first_ = true;
};

}  // namespace hvd
