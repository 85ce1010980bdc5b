#include "observe/timeline.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hvd {
namespace {

std::string quoted(std::string_view text) {
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

}  // namespace

Timeline::Timeline(const std::string& path, bool mark_cycles)
    : mark_cycles_(mark_cycles), start_(std::chrono::steady_clock::now()), file_(std::fopen(path.c_str(), "w")) {
  if (!file_) {
    throw InvalidArgument("cannot write the timeline to '" + path + "': " + std::strerror(errno) +
                          "; give HOROVOD_TIMELINE (--timeline-filename) a file in a folder that exists");
  }
  std::fputs("[\n]\n", file_.get());
  std::fflush(file_.get());
}

void Timeline::event(int process, char phase, std::string_view name, const std::string& rest) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start_).count();
  std::fseek(file_.get(), -2, SEEK_END);  // over the closing bracket
  std::fprintf(file_.get(), "%s{\"ph\": \"%c\", \"name\": %s, \"pid\": %d, \"tid\": 0, \"ts\": %lld%s}\n]\n",
               is_first_ ? "" : ",", phase, quoted(name).c_str(), process, static_cast<long long>(micros), rest.c_str());
  std::fflush(file_.get());
  is_first_ = false;
}

int Timeline::process_of(const std::string& name) {
  const auto [position, is_new] = processes_.try_emplace(name, static_cast<int>(processes_.size()) + 1);
  if (is_new) event(position->second, 'M', "process_name", ", \"args\": {\"name\": " + quoted(name) + "}");
  return position->second;
}

void Timeline::on_rank_ready(const std::string& name, std::string_view operation, int rank) {
  const int process = process_of(name);
  bool& negotiating = negotiating_[name];
  if (!negotiating) event(process, 'B', "NEGOTIATE_" + std::string(operation), "");
  negotiating = true;
  event(process, 'X', std::to_string(rank), ", \"dur\": 0");
}

void Timeline::on_agreed(const std::string& name, std::string_view operation) {
  negotiating_.erase(name);
  event(process_of(name), 'E', "NEGOTIATE_" + std::string(operation), "");
}

void Timeline::on_start(std::span<const ObservedOperation> operations, std::string_view activity) {
  for (const ObservedOperation& o : operations) {
    event(process_of(o.name), 'B', o.operation, "");
    event(process_of(o.name), 'B', activity, "");
  }
}

void Timeline::on_finish(std::span<const ObservedOperation> operations) {
  for (const ObservedOperation& o : operations) {
    event(process_of(o.name), 'E', "", "");
    event(process_of(o.name), 'E', o.operation,
          ", \"args\": {\"dtype\": " + quoted(o.dtype) + ", \"shape\": " + quoted(o.shape) + "}");
  }
}

void Timeline::on_round() {
  if (mark_cycles_) event(0, 'i', "CYCLE_START", ", \"s\": \"g\"");
}

}  // namespace hvd
