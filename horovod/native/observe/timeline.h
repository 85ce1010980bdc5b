// A Chrome trace of every operation, for Perfetto or chrome://tracing. Rank 0 writes it.
//
//   file  := "[" event ("," event)* "]"     valid JSON after every write: the next write overwrites the closing bracket,
//                                           and restores it on failure
//   event := process_name or thread_name metadata | B | E | X | i
//
// Each tensor name is a trace "process": thread 0 has the engine's work, thread 1 the GPU's. The first event, of process 0, has
// the time of ts 0. Events are gathered and written when the engine is idle, at the latest some 20 ms after they were reported.
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "base/mutex.h"
#include "observe/listener.h"
#include "observe/timeline_file.h"

namespace hvd {

class Timeline final : public Listener {
 public:
  explicit Timeline(const Log& log) : log_(log) {}
  ~Timeline() override;

  // Any thread. Ends the current file and begins a new one. Throws InvalidArgument if it cannot be opened. `continues`: appends
  // to the existing file if that is a timeline, of any process. Names keep their processes, and open events end here.
  void start(const std::string& path, bool mark_cycles, bool continues = false) EXCLUDES(mutex_);
  // Any thread. Ends the file, if there is one, and warns if it is incomplete. A failed write, as on a full disk, ends the file
  // at once with an error in the log; operations continue.
  void stop() EXCLUDES(mutex_);

  // Any thread. Writes an event with a duration that belongs to no tensor. `arguments`: a JSON object.
  void span(std::string_view name, std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end,
            const std::string& arguments) EXCLUDES(mutex_);

  bool is_listening() const override EXCLUDES(mutex_);
  void on_rank_ready(const std::string& name, std::string_view operation, int rank) override EXCLUDES(mutex_);
  void on_agreed(const std::string& name, std::string_view operation) override EXCLUDES(mutex_);
  void on_refused(const std::string& name) override EXCLUDES(mutex_);
  void on_start(std::span<const ObservedOperation> operations) override EXCLUDES(mutex_);
  void on_activity(std::span<const ObservedOperation> operations, std::string_view activity) override EXCLUDES(mutex_);
  void on_finish(std::span<const ObservedOperation> operations) override EXCLUDES(mutex_);
  void on_gpu_work(std::span<const ObservedOperation> operations, const GpuWork& work) override EXCLUDES(mutex_);
  void on_round() override EXCLUDES(mutex_);
  void on_idle() override EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  int process_of(const std::string& name) REQUIRES(mutex_);
  void event(int process, char phase, std::string_view name, const std::string& rest, int thread = 0,
             Clock::time_point time = Clock::now()) REQUIRES(mutex_);
  void complete_event(int process, int thread, std::string_view name, Clock::time_point begin, Clock::time_point end,
                      const std::string& rest) REQUIRES(mutex_);
  int64_t micros_until(Clock::time_point time) const REQUIRES(mutex_);
  void begin_file() REQUIRES(mutex_);
  void go_on(TimelineSoFar so_far) REQUIRES(mutex_);
  void write() REQUIRES(mutex_);
  bool append(std::string text) REQUIRES(mutex_);
  void fail(int error) REQUIRES(mutex_);
  void close() REQUIRES(mutex_);
  void write_if_due() REQUIRES(mutex_);

  const Log& log_;
  mutable Mutex mutex_;
  int file_ GUARDED_BY(mutex_) = -1;                                     // descriptor; -1: no timeline is being written
  int64_t end_ GUARDED_BY(mutex_) = 0;                                   // offset of the line with the closing bracket
  std::string path_ GUARDED_BY(mutex_), incomplete_ GUARDED_BY(mutex_);  // incomplete_: the warning, or empty
  bool mark_cycles_ GUARDED_BY(mutex_) = false;
  Clock::time_point start_ GUARDED_BY(mutex_);
  Clock::time_point last_write_ GUARDED_BY(mutex_);
  std::string queue_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> processes_ GUARDED_BY(mutex_);
  std::unordered_set<int> with_gpu_ GUARDED_BY(mutex_);  // processes whose thread 1 has a name
  std::unordered_set<std::string> negotiating_ GUARDED_BY(mutex_);
  std::unordered_set<std::string> active_ GUARDED_BY(mutex_);  // names with an open activity
};

}  // namespace hvd
