// A timeline's existing file, read so that it can be continued: by the process that began it, or by another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace hvd {

struct TimelineSoFar {
  int64_t end = 0;                                 // bytes up to the end of the last event that is whole
  int64_t began_micros = 0;                        // ts 0, in microseconds since the epoch
  std::unordered_map<std::string, int> processes;  // the numbers of tensors' names
  std::unordered_map<int, int> open;               // by process: how many events have begun and not ended, if any
};

// Reads an open file from its beginning. Nothing if it does not begin as a timeline does. What was cut off in the middle of an
// event, as its writer was killed, is left out.
std::optional<TimelineSoFar> timeline_so_far(int file);

}  // namespace hvd
