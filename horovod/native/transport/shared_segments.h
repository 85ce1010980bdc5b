// Memory that processes of a host share, and checks that there is room for it.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace hvd {

// A mapping of a file without a name. The kernel frees the file when the last process that maps it ends, however it ends.
class SharedSegment {
 public:
  // Makes a segment. Throws StartupError.
  explicit SharedSegment(size_t bytes);
  // Maps a segment of another process of this user, which must still have its name. Throws StartupError.
  SharedSegment(const std::string& name, size_t bytes);
  SharedSegment(const SharedSegment&) = delete;
  ~SharedSegment();

  std::byte* memory() const { return memory_; }
  // The path by which other processes find the segment, until let_go().
  const std::string& name() const { return name_; }
  void let_go();

 private:
  void map(const std::string& what);

  std::string name_;
  const size_t bytes_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
};

// ---- room -----------------------------------------------------------------------------------------------------------

// Shared memory needs room in /dev/shm, which has 64 MB in a Docker container. Linux lets a file there exceed the room, and
// kills a process by SIGBUS at the first page too many, perhaps an hour later, when a data loader has filled the rest.

// The failure, with advice, if segments of `bytes` for each of `ranks` do not fit; none if they fit.
Failure why_no_room(size_t bytes, int ranks);

// Allocates all pages of this memory now, filled with zeros. Returns false if there is no room.
bool commit(std::byte* memory, size_t bytes);

// The failure of a rank whose commit() returned false.
Failure no_room_left(size_t bytes, int ranks);

}  // namespace hvd
