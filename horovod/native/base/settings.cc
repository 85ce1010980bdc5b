#include "base/settings.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>

#include "base/by_rank.h"
#include "base/error.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const std::string& wanted) {
  throw InvalidArgument(std::string(variable) + "='" + value + "' is not " + wanted + "; unset it or give a valid value");
}

// The character of UTF-8 at `at`, which is moved behind it; kNoCharacter if none is there.
constexpr uint32_t kNoCharacter = 0xffffffff;
uint32_t next_character(std::string_view text, size_t* at) {
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // of as many further bytes: shorter ones are written shorter
  uint32_t character = static_cast<unsigned char>(text[(*at)++]);
  if (character < 0x80) return character;
  const int more = std::countl_one(static_cast<unsigned char>(character)) - 1;
  if (more < 1 || more > 3) return kNoCharacter;
  character &= 0x3fu >> more;
  for (int i = 0; i < more; ++i) {
    const unsigned byte = *at < text.size() ? static_cast<unsigned char>(text[(*at)++]) : 0u;
    if ((byte & 0xc0) != 0x80) return kNoCharacter;
    character = character << 6 | (byte & 0x3f);
  }
  return character < kLeast[more] ? kNoCharacter : character;
}

// As Python takes it, which has no characters for halves of UTF-16's pairs.
bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const uint32_t character = next_character(text, &at);
    if (character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) return false;
  }
  return true;
}

// Bytes that no error could quote, as a Python user knows them: "\\xff".
std::string escaped(const std::string& text) {
  std::ostringstream out;
  for (const unsigned char c : text) {
    if (c >= 0x20 && c < 0x7f)
      out << c;
    else
      out << "\\x" << std::hex << (c >> 4) << (c & 15);
  }
  return out.str();
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
  if (!is_utf8(text)) refuse(variable, escaped(text), "UTF-8 text");
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
std::string to_text(T value) {  // the shortest that reads back as the same number
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// Of "NAME=value" lines.
std::string value_in(const std::string& text, const std::string& variable) {
  const size_t line = ("\n" + text).find("\n" + variable + "=");
  if (line == std::string::npos) return "unknown there";
  const size_t begin = line + variable.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

// "NAME (rank 0: 1; rank 1: 2)", or "" where all texts have one value. `where` is said of each value besides.
std::string difference(const std::vector<std::string>& texts, const std::string& name, const std::vector<std::string>& where) {
  std::vector<int> ranks(texts.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::string> values;
  for (const std::string& text : texts) values.push_back(value_in(text, name));
  if (std::count(values.begin(), values.end(), values.front()) == static_cast<ptrdiff_t>(values.size())) return "";
  for (size_t i = 0; i < where.size(); ++i) values[i] += where[i];
  return name + " (" + by_rank(ranks, values) + ")";
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
#define HVD_READ(variable, member, type, default_value, scope, help) read(#variable, &settings.member);
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

std::string Settings::of_job() const {
  std::string text;
#define HVD_LINE(variable, member, type, default_value, scope, help) \
  if (SettingScope::scope == SettingScope::kJob) text += #variable "=" + to_text(member) + "\n";
  HVD_FOR_EACH_SETTING(HVD_LINE)
#undef HVD_LINE
  return text;
}

std::string disagreement_of_settings(const std::vector<std::string>& texts) {
  std::string different;
  std::istringstream lines(texts.front());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("HOROVOD_")) continue;
    const std::string each = difference(texts, line.substr(0, line.find('=')), {});
    if (!each.empty()) different += (different.empty() ? "" : ", ") + each;
  }
  return different;
}

std::string disagreement_of_builds(const std::vector<std::string>& texts) {
  std::vector<std::string> hosts;
  for (const std::string& text : texts) hosts.push_back(" on " + value_in(text, "host"));
  return difference(texts, "core", hosts);
}

std::vector<SettingRow> settings_table() {
  const Settings defaults;
  std::vector<SettingRow> rows;
#define HVD_ROW(variable, member, type, default_value, scope, help) \
  rows.push_back({#variable, type_name(defaults.member), to_text(defaults.member), help});
  HVD_FOR_EACH_SETTING(HVD_ROW)
#undef HVD_ROW
  return rows;
}

}  // namespace hvd
