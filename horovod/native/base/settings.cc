#include "base/settings.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const std::string& wanted) {
  throw InvalidArgument(Said::wrong_setting, {.others = {{"setting", variable}, {"value", value}, {"expected", wanted}}});
}

// The UTF-8 character at `at`, which is moved past it; kNoCharacter if the bytes are not UTF-8.
constexpr uint32_t kNoCharacter = 0xffffffff;
uint32_t next_character(std::string_view text, size_t* at) {
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // by number of further bytes; smaller ones are overlong
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

// Python's rules: surrogates are not characters.
bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const uint32_t character = next_character(text, &at);
    if (character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) return false;
  }
  return true;
}

// Replaces bytes outside printable ASCII as Python does: "\\xff".
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

std::string to_text(bool value) { return value ? "1" : "0"; }
std::string to_text(const std::string& value) { return value; }
template <typename T>
std::string to_text(T value) {  // the shortest text that reads back as the same number
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

long long number_in(const char* text, char** end, int64_t) { return std::strtoll(text, end, 10); }
double number_in(const char* text, char** end, double) { return std::strtod(text, end); }

// The readers that rows name. Each parses a text, or throws InvalidArgument.

template <typename T>
auto in_range(T least, T most) {
  return [=](const char* variable, const std::string& text, T* out) {
    const std::string kind = std::is_integral_v<T> ? "a whole number" : "a number";
    errno = 0;
    char* end = nullptr;
    const auto value = number_in(text.c_str(), &end, T{});
    const bool is_number = end != text.c_str() && *end == '\0';
    if (!is_number || !(value >= least)) refuse(variable, text, kind + " >= " + to_text(least));
    if (value > most || (std::is_integral_v<T> && errno == ERANGE))
      refuse(variable, text, kind + " <= " + to_text(static_cast<int64_t>(most)));
    *out = value;
  };
}

auto on_or_off() {
  return [](const char* variable, const std::string& text, bool* out) {
    static const std::set<std::string> on = {"1", "true", "yes", "on"}, off = {"0", "false", "no", "off"};
    *out = on.count(lower(text)) > 0;
    if (!*out && !off.count(lower(text))) refuse(variable, text, "0 or 1");
  };
}

// `choices` are separated by ", ".
auto one_of(std::string_view choices, std::string_view or_else = "") {
  return [=](const char* variable, const std::string& text, std::string* out) {
    *out = lower(text);
    const std::string listed = ", " + std::string(choices) + ", ";
    const bool is_word = out->find(',') == std::string::npos;
    if (!is_word || listed.find(", " + *out + ", ") == std::string::npos) {
      refuse(variable, text, "one of " + std::string(choices) + std::string(or_else));
    }
  };
}

// One choice, or two by size: "gather:65536,scatter" is gather up to 65536 bytes, else scatter.
auto one_of_by_size(std::string_view choices) {
  return [=](const char* variable, const std::string& text, std::string* out) {
    const auto choice = one_of(choices, ", or two by size, as gather:65536,scatter");
    const size_t colon = text.find(':'), comma = text.find(',');
    if (colon == std::string::npos || comma == std::string::npos || comma < colon) return choice(variable, text, out);
    std::string up_to, beyond;
    int64_t bytes = 0;
    choice(variable, text.substr(0, colon), &up_to);
    in_range<int64_t>(0, std::numeric_limits<int64_t>::max())(variable, text.substr(colon + 1, comma - colon - 1), &bytes);
    choice(variable, text.substr(comma + 1), &beyond);
    *out = up_to + ":" + std::to_string(bytes) + "," + beyond;
  };
}

auto any_text() {
  return [](const char*, const std::string& text, std::string* out) { *out = text; };
}

template <typename Reader, typename T>
void read(const char* variable, const Reader& reader, T* out) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return;
  std::string text = value;
  text.erase(text.find_last_not_of(" \t\r\n") + 1);  // blanks left by YAML files and shells
  if (!is_utf8(text)) refuse(variable, escaped(text), "UTF-8 text");
  if (!text.empty()) reader(variable, text, out);
}

// `text` has lines NAME=value.
std::string value_in(const std::string& text, const std::string& variable) {
  const size_t line = ("\n" + text).find("\n" + variable + "=");
  if (line == std::string::npos) return "unknown there";
  const size_t begin = line + variable.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

// "NAME (rank 0: 1; rank 1: 2)", or "" if all texts have one value. `where` has a suffix for each rank's value.
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
#define HVD_READ(variable, member, type, default_value, reader, is_of_job, is_tuned) read(#variable, reader, &settings.member);
  HVD_FOR_EACH_SETTING(HVD_READ)
#undef HVD_READ
  if (settings.hierarchical_allreduce || settings.torus_allreduce) {
    if (settings.allreduce_algorithm != "auto" && settings.allreduce_algorithm != "hierarchical") {
      refuse("HOROVOD_ALLREDUCE_ALGORITHM", settings.allreduce_algorithm,
             "what HOROVOD_HIERARCHICAL_ALLREDUCE or HOROVOD_TORUS_ALLREDUCE asks for, hierarchical");
    }
    settings.allreduce_algorithm = "hierarchical";
  }
  return settings;
}

void Settings::tune(const std::string& lines) {
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const size_t end = std::min(line.find('='), line.size());
    const std::string name = line.substr(0, end), text = line.substr(std::min(end + 1, line.size()));
#define HVD_TUNE(variable, member, type, default_value, reader, is_of_job, is_tuned) \
  if (is_tuned && name == #variable) (reader)(#variable, text, &member);
    HVD_FOR_EACH_SETTING(HVD_TUNE)
#undef HVD_TUNE
  }
}

std::string Settings::of_job() const {
  std::string text;
#define HVD_LINE(variable, member, type, default_value, reader, is_of_job, is_tuned) \
  if (is_of_job) text += #variable "=" + to_text(member) + "\n";
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

}  // namespace hvd
