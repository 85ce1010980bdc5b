#include "base/settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/error.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const std::string& wanted) {
  throw InvalidArgument(std::string(variable) + "='" + value + "' is not " + wanted +
                        "; unset it or give a valid value");
}

void parse(const char* variable, const std::string& text, int64_t* out) {
  errno = 0;
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || errno == ERANGE || value < 0) {
    refuse(variable, text, "a whole number >= 0");
  }
  *out = value;
}

void parse(const char* variable, const std::string& text, double* out) {
  errno = 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || errno == ERANGE || !(value >= 0) || value > 1e9) {
    refuse(variable, text, "a number >= 0");
  }
  *out = value;
}

void parse(const char* variable, std::string text, bool* out) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "1" || text == "true" || text == "yes" || text == "on") {
    *out = true;
  } else if (text == "0" || text == "false" || text == "no" || text == "off") {
    *out = false;
  } else {
    refuse(variable, text, "0 or 1");
  }
}

void parse(const char*, const std::string& text, std::string* out) { *out = text; }

template <typename T>
void read(const char* variable, T* out) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return;
  std::string text = value;
  text.erase(text.find_last_not_of(" \t\r\n") + 1);  // YAML files and shells leave blanks behind
  if (!text.empty()) parse(variable, text, out);
}

void require_one_of(const char* variable, const std::string& value, const std::set<std::string>& allowed) {
  if (allowed.count(value)) return;
  std::string wanted = "one of";
  for (const auto& word : allowed) wanted += " " + word;
  refuse(variable, value, wanted);
}

const char* type_name(int64_t) { return "int"; }
const char* type_name(double) { return "float"; }
const char* type_name(bool) { return "bool"; }
const char* type_name(const std::string&) { return "string"; }

std::string to_text(bool value) { return value ? "1" : "0"; }
std::string to_text(const std::string& value) { return value; }
template <typename T>
std::string to_text(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
#define HVD_READ(variable, member, type, default_value, help) read(#variable, &settings.member);
  HVD_FOR_EACH_SETTING(HVD_READ)
#undef HVD_READ
  std::string& level = settings.log_level;
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::tolower(c); });
  require_one_of("HOROVOD_LOG_LEVEL", level, {"trace", "debug", "info", "warning", "error", "fatal"});
  require_one_of("HOROVOD_TRANSPORT", settings.transport, {"auto", "shared_memory", "mpi"});
  require_one_of("HOROVOD_GPU_TRANSPORT", settings.gpu_transport, {"auto", "nccl", "host"});
  require_one_of("HOROVOD_SIMD", settings.simd, {"auto", "baseline", "x86-64-v3", "x86-64-v4"});
  require_one_of("HOROVOD_ALLREDUCE_ALGORITHM", settings.allreduce_algorithm, {"auto", "gather", "scatter", "hierarchical"});
  if (settings.hierarchical_allreduce || settings.torus_allreduce) {
    if (settings.allreduce_algorithm != "auto" && settings.allreduce_algorithm != "hierarchical") {
      refuse("HOROVOD_ALLREDUCE_ALGORITHM", settings.allreduce_algorithm,
             "what HOROVOD_HIERARCHICAL_ALLREDUCE or HOROVOD_TORUS_ALLREDUCE asks for, hierarchical");
    }
    settings.allreduce_algorithm = "hierarchical";
  }
  return settings;
}

std::vector<SettingRow> settings_table() {
  const Settings defaults;
  std::vector<SettingRow> rows;
#define HVD_ROW(variable, member, type, default_value, help) \
  rows.push_back({#variable, type_name(defaults.member), to_text(defaults.member), help});
  HVD_FOR_EACH_SETTING(HVD_ROW)
#undef HVD_ROW
  return rows;
}

}  // namespace hvd
