#include "base/log.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/settings.h"

namespace hvd {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warning", "error", "fatal"};

LogLevel level_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;  // not reached: Settings::from_environment refuses other names
}

std::string now_text() {
  using std::chrono::system_clock;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[64];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%06d: ", static_cast<int>(micros));
  return text;
}

}  // namespace

Log::Log(const Settings& settings, int rank)
    : threshold_(level_named(settings.log_level)), hide_time_(settings.log_hide_time), rank_(rank) {}

void Log::write(LogLevel level, const char* file, int line, const std::string& message) const {
  const char* slash = std::strrchr(file, '/');
  const char letter = "TDIWEF"[static_cast<int>(level)];
  std::FILE* stream = level >= LogLevel::kWarning ? stderr : stdout;
  std::fprintf(stream, "[%s%c %s:%d] [%d]: %s\n", hide_time_ ? "" : now_text().c_str(), letter, slash ? slash + 1 : file, line,
               rank_, message.c_str());
  std::fflush(stream);
}

}  // namespace hvd
