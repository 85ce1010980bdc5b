// A Chrome trace of every operation: open it in Perfetto or chrome://tracing.
//
//   file  := "[" event ("," event)* "]"     valid JSON after every write: the closing bracket is overwritten by the next,
//                                           and written again where one fails
//   event := process_name or thread_name metadata | B | E | X | i
//
// One trace "process" for each tensor name, in it thread 0 for what the engine does and thread 1 for what a GPU has done;
// the first event, of process 0, tells when ts 0 was. Written on rank 0. Events are gathered and written when the engine
// comes to rest, at the latest some milliseconds after they happened (a GPU's: after they were heard of).
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

  // Any thread. Begins a new file, and ends the one being written; throws InvalidArgument when it cannot be written.
  // `continues`: goes on with the file that is there, whoever wrote it, if it is a timeline: names keep their processes, and
  // what has begun in it and not ended ends here.
  void start(const std::string& path, bool mark_cycles, bool continues = false) EXCLUDES(mutex_);
  // Ends the file, and says so if it is incomplete. Harmless when there is none. A file that cannot be written any further,
  // as on a full disk, is ended at once, with an error in the log: operations go on.
  void stop() EXCLUDES(mutex_);

  // Any thread. Something that lasted, of no tensor. `arguments`: a JSON object.
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
  void event(int process, char phase, std::string_view name, const std::string& rest, int thread = 0) REQUIRES(mutex_);
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
  int file_ GUARDED_BY(mutex_) = -1;    // descriptor; -1: nobody wants a timeline now
  int64_t end_ GUARDED_BY(mutex_) = 0;  // where the closing bracket, in a line of its own, begins
  std::string path_ GUARDED_BY(mutex_), incomplete_ GUARDED_BY(mutex_);  // why it is; empty if it is not
  bool mark_cycles_ GUARDED_BY(mutex_) = false;
  Clock::time_point start_ GUARDED_BY(mutex_);
  Clock::time_point last_write_ GUARDED_BY(mutex_);
  std::string queue_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, int> processes_ GUARDED_BY(mutex_);
  std::unordered_set<int> with_gpu_ GUARDED_BY(mutex_);  // processes whose thread 1 has a name
  std::unordered_set<std::string> negotiating_ GUARDED_BY(mutex_);
  std::unordered_set<std::string> active_ GUARDED_BY(mutex_);  // names with an activity that has begun and not ended
};

}  // namespace hvd
