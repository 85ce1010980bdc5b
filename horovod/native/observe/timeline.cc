#include "observe/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hvd {
namespace {

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The operation's dtype, shape, and the route of an allreduce with its reason.
std::string arguments(const ObservedOperation& o) {
  const std::string way = o.route.empty() ? "" : ", \"route\": " + json_text(o.route) + ", \"reason\": " + json_text(o.reason);
  const std::string changed = o.settings.empty() ? "" : ", \"settings\": " + json_text(o.settings);
  return "{\"dtype\": " + json_text(o.dtype) + ", \"shape\": " + json_text(o.shape) + way + changed + "}";
}

int64_t micros_since_epoch() {
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
}

constexpr std::string_view kClosing = "\n]\n";

// Writes the whole text. False, with errno set, if that fails.
bool write_at(int file, std::string_view text, int64_t offset) {
  while (!text.empty()) {
    const ssize_t written = pwrite(file, text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return true;
}

}  // namespace

Timeline::~Timeline() { stop(); }

void Timeline::start(const std::string& path, bool mark_cycles, bool continues) {
  const int file = ::open(path.c_str(), O_CREAT | O_CLOEXEC | (continues ? O_RDWR : O_WRONLY | O_TRUNC), 0666);
  if (file < 0) {
    throw InvalidArgument(Said::timeline_not_writable, {.others = {{"path", path}, {"why", std::strerror(errno)}}});
  }
  MutexLock lock(mutex_);
  close();
  std::optional<TimelineSoFar> so_far = continues ? timeline_so_far(file) : std::nullopt;
  file_ = file;
  path_ = path;
  mark_cycles_ = mark_cycles;
  start_ = last_write_ = Clock::now();
  processes_.clear();
  with_gpu_.clear();
  negotiating_.clear();
  active_.clear();
  if (so_far) {
    go_on(std::move(*so_far));
  } else {
    begin_file();
  }
}

void Timeline::begin_file() {
  end_ = 0;
  if (ftruncate(file_, 0) != 0 && errno != EINVAL) return fail(errno);  // EINVAL: no regular file, such as a device
  if (!append("[")) return;
  event(0, 'M', "process_name",
        ", \"args\": {\"name\": \"horovod\", \"start_time_since_epoch_in_micros\": " + std::to_string(micros_since_epoch()) +
            "}");
  write();
}

void Timeline::go_on(TimelineSoFar so_far) {
  start_ -= std::chrono::microseconds(micros_since_epoch() - so_far.began_micros);
  processes_ = std::move(so_far.processes);
  end_ = so_far.end;
  if (ftruncate(file_, end_) != 0 || !write_at(file_, kClosing, end_)) return fail(errno);
  for (const auto& [process, open] : so_far.open) {
    for (int i = 0; i < open; ++i) event(process, 'E', "", "");
  }
  write();
}

void Timeline::stop() {
  MutexLock lock(mutex_);
  close();
}

void Timeline::close() {
  write();
  if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0) fail(errno);  // a network file system may write only now
  if (!incomplete_.empty()) HVD_LOG(log_, kWarning, incomplete_);
  incomplete_.clear();
}

// Leaves a readable file: the events that fitted, and a closing bracket.
void Timeline::fail(int error) {
  incomplete_ = "the timeline '" + path_ + "' is incomplete: " + std::strerror(error);
  HVD_LOG(log_, kError, incomplete_ << ". No more is written; operations go on without it. Make room, and start anew");
  queue_.clear();
  if (file_ < 0) return;
  if (ftruncate(file_, end_) == 0) write_at(file_, kClosing, end_);
  ::close(std::exchange(file_, -1));
}

bool Timeline::is_listening() const {
  MutexLock lock(mutex_);
  return file_ >= 0;
}

int64_t Timeline::micros_until(Clock::time_point time) const {
  return std::chrono::duration_cast<std::chrono::microseconds>(time - start_).count();
}

void Timeline::event(int process, char phase, std::string_view name, const std::string& rest, int thread,
                     Clock::time_point time) {
  if (file_ < 0) return;
  queue_ += std::string("{\"ph\": \"") + phase + "\", \"name\": " + json_text(name) + ", \"pid\": " + std::to_string(process) +
            ", \"tid\": " + std::to_string(thread) + ", \"ts\": " + std::to_string(micros_until(time)) + rest + "},\n";
}

void Timeline::complete_event(int process, int thread, std::string_view name, Clock::time_point begin, Clock::time_point end,
                              const std::string& rest) {
  const int64_t micros = micros_until(end) - micros_until(begin);
  event(process, 'X', name, ", \"dur\": " + std::to_string(micros) + rest, thread, begin);
}

// Overwrites the closing bracket. False after a failure, which it has logged.
bool Timeline::append(std::string text) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (!write_at(file_, text.append(kClosing), end_)) {
    fail(errno);
    return false;
  }
  end_ += bytes;
  return true;
}

void Timeline::write() {
  last_write_ = Clock::now();
  if (file_ < 0 || queue_.empty()) return;
  queue_.resize(queue_.size() - 2);  // the last comma
  append((end_ == 1 ? "\n" : ",\n") + std::exchange(queue_, {}));
}

void Timeline::write_if_due() {
  constexpr size_t kMuch = 1 << 16;
  if (queue_.size() > kMuch || Clock::now() - last_write_ > std::chrono::milliseconds(20)) write();
}

int Timeline::process_of(const std::string& name) {
  const auto [position, is_new] = processes_.try_emplace(name, static_cast<int>(processes_.size()) + 1);
  if (is_new) event(position->second, 'M', "process_name", ", \"args\": {\"name\": " + json_text(name) + "}");
  return position->second;
}

void Timeline::span(std::string_view name, Clock::time_point begin, Clock::time_point end, const std::string& arguments) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  complete_event(0, 0, name, std::max(begin, start_), end, ", \"args\": " + arguments);
  write();
}

void Timeline::on_rank_ready(const std::string& name, std::string_view operation, int rank) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  const int process = process_of(name);
  if (negotiating_.insert(name).second) event(process, 'B', "NEGOTIATE_" + std::string(operation), "");
  event(process, 'X', std::to_string(rank), ", \"dur\": 0");
  write_if_due();
}

void Timeline::on_agreed(const std::string& name, std::string_view operation) {
  MutexLock lock(mutex_);
  if (file_ < 0 || negotiating_.erase(name) == 0) return;
  event(process_of(name), 'E', "NEGOTIATE_" + std::string(operation), "");
}

void Timeline::on_refused(const std::string& name) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  event(process_of(name), 'B', "ERROR", "");
  event(process_of(name), 'E', "ERROR", "");
}

void Timeline::on_start(std::span<const ObservedOperation> operations) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  for (const ObservedOperation& o : operations) event(process_of(o.name), 'B', o.operation, "");
}

void Timeline::on_activity(std::span<const ObservedOperation> operations, std::string_view activity) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  for (const ObservedOperation& o : operations) {
    const int process = process_of(o.name);
    if (!active_.insert(o.name).second) event(process, 'E', "", "");
    event(process, 'B', activity, "");
  }
}

void Timeline::on_finish(std::span<const ObservedOperation> operations) {
  MutexLock lock(mutex_);
  if (file_ < 0) return;
  for (const ObservedOperation& o : operations) {
    const int process = process_of(o.name);
    if (active_.erase(o.name) != 0) event(process, 'E', "", "");
    event(process, 'E', o.operation, ", \"args\": " + arguments(o));
  }
  write_if_due();
}

// Complete events ("X"), since the negotiation of a name's next operation overlaps the GPU's work on the last.
void Timeline::on_gpu_work(std::span<const ObservedOperation> operations, const GpuWork& work) {
  MutexLock lock(mutex_);
  if (file_ < 0 || work.begin < start_) return;  // it began before this file
  for (const ObservedOperation& o : operations) {
    const int process = process_of(o.name);
    if (with_gpu_.insert(process).second) event(process, 'M', "thread_name", ", \"args\": {\"name\": \"GPU\"}", 1);
    complete_event(process, 1, o.operation, work.begin, work.end, ", \"args\": " + arguments(o));
    for (const GpuActivity& one : work.activities) complete_event(process, 1, one.name, one.begin, one.end, "");
  }
  write_if_due();
}

void Timeline::on_round() {
  MutexLock lock(mutex_);
  if (mark_cycles_) event(0, 'i', "CYCLE_START", ", \"s\": \"g\"");
}

void Timeline::on_idle() {
  MutexLock lock(mutex_);
  write();
}

}  // namespace hvd
