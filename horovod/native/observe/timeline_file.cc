#include "observe/timeline_file.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

namespace hvd {
namespace {

constexpr std::string_view kBegin = "{\"ph\": \"", kProcess = ", \"pid\": ", kNamed = "\"args\": {\"name\": \"";
constexpr std::string_view kEpoch = "\"start_time_since_epoch_in_micros\": ";

// The number that follows a text with quotes. Names cannot contain the text, since their quotes are escaped.
std::optional<int64_t> number_behind(std::string_view line, std::string_view text) {
  const size_t at = line.find(text);
  if (at == std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  const char* begin = line.data() + at + text.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), number);
  if (error != std::errc() || end == begin) return std::nullopt;
  return number;
}

// The unescaped name in a metadata event.
std::string unquoted_name(std::string_view line) {
  const size_t at = line.find(kNamed);
  if (at == std::string_view::npos) return "";
  std::string name;
  for (size_t i = at + kNamed.size(); i < line.size() && line[i] != '"'; ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[++i] == 'u' && i + 4 < line.size()) {
      int code = 0;
      std::from_chars(line.data() + i + 1, line.data() + i + 5, code, 16);
      name += static_cast<char>(code);
      i += 4;
    } else {
      name += line[i];
    }
  }
  return name;
}

// False if the line is not a whole event.
bool take(std::string_view line, TimelineSoFar& found) {
  if (line.ends_with(',')) line.remove_suffix(1);
  if (!line.starts_with(kBegin) || line.size() <= kBegin.size() || !line.ends_with('}')) return false;
  const std::optional<int64_t> process = number_behind(line, kProcess);
  if (!process) return false;
  const int number = static_cast<int>(*process);
  const char phase = line[kBegin.size()];
  if (phase == 'M' && number != 0 && line.find("\"process_name\"") != std::string_view::npos) {
    found.processes[unquoted_name(line)] = number;
  }
  if (phase == 'B') ++found.open[number];
  if (phase == 'E' && --found.open[number] <= 0) found.open.erase(number);
  return true;
}

ssize_t read_some(int file, char* to, size_t most, int64_t offset) {
  ssize_t got = 0;
  do {
    got = pread(file, to, most, offset);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

std::optional<TimelineSoFar> timeline_so_far(int file) {
  TimelineSoFar found;
  bool is_first = true;
  std::string rest, chunk(1 << 18, '\0');
  int64_t read = 0, line_begin = 0;
  for (ssize_t got = 0; (got = read_some(file, chunk.data(), chunk.size(), read)) > 0; read += got) {
    rest.append(chunk, 0, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string_view line(rest.data() + begin, end - begin);
      if (line_begin == 0) {
        if (line != "[") return std::nullopt;
      } else if (is_first) {
        const std::optional<int64_t> began = number_behind(line, kEpoch);
        if (!began || !take(line, found)) return std::nullopt;
        found.began_micros = *began;
        is_first = false;
      } else if (!take(line, found)) {
        return found;  // the closing bracket, or an event cut off
      }
      found.end = line_begin + static_cast<int64_t>(line.size()) - (line.ends_with(',') ? 1 : 0);
      line_begin += static_cast<int64_t>(line.size()) + 1;
    }
    rest.erase(0, begin);
  }
  return is_first ? std::nullopt : std::optional(found);
}

}  // namespace hvd
