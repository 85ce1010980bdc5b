// Log lines: "[time: L file:line] [rank]: message", to stdout up to INFO and to stderr from WARNING.
//
// The logger is an object owned by whoever starts the engine and passed by reference; thread-safe.
#pragma once

#include <sstream>
#include <string>

namespace hvd {

struct Settings;

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

class Log {
 public:
  Log(const Settings& settings, int rank);

  bool enabled(LogLevel level) const { return level >= threshold_; }
  void write(LogLevel level, const char* file, int line, const std::string& message) const;

 private:
  // Constant after construction.
  LogLevel threshold_;
  bool hide_time_;
  int rank_;
};

// HVD_LOG(log, kDebug, "bucket of " << n << " tensors"): the message is built only when the level is enabled.
#define HVD_LOG(log, level, message)                                             \
  do {                                                                           \
    if ((log).enabled(::hvd::LogLevel::level)) {                                 \
      std::ostringstream hvd_log_text;                                           \
      hvd_log_text << message;                                                   \
      (log).write(::hvd::LogLevel::level, __FILE__, __LINE__, hvd_log_text.str()); \
    }                                                                            \
  } while (false)

}  // namespace hvd
