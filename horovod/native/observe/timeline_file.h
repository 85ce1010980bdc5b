// Reads a timeline's existing file, so that this or another process can continue it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace hvd {

struct TimelineSoFar {
  int64_t end = 0;                                 // offset of the end of the last whole event
  int64_t began_micros = 0;                        // ts 0, in microseconds since the epoch
  std::unordered_map<std::string, int> processes;  // process number by tensor name
  std::unordered_map<int, int> open;               // by process: number of open events, if any
};

// Reads an open file from its beginning. Nothing if it does not begin as a timeline. Ignores an event that was cut off because
// its writer was killed.
std::optional<TimelineSoFar> timeline_so_far(int file);

}  // namespace hvd
