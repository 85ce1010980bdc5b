// Memory that processes of one host share, and whether there is room for it.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"

namespace hvd {

// Files that have no name but that of a descriptor, so nothing is left of them when the last process that has mapped them ends,
// however it does. A mapping, until it is destroyed.
class SharedSegment {
 public:
  // Makes one. Throws StartupError.
  explicit SharedSegment(size_t bytes);
  // Maps one that another process of this user has made, and has not let go of. Throws StartupError.
  SharedSegment(const std::string& name, size_t bytes);
  SharedSegment(const SharedSegment&) = delete;
  ~SharedSegment();

  std::byte* memory() const { return memory_; }
  // By which others find it, until let_go().
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

// Room for the memory that ranks of a host share, in the file system where it is made: /dev/shm, 64 MB in a container of
// Docker. The system takes files there that are larger than what it has, and ends who touches a page too many with SIGBUS,
// perhaps an hour later, when a data loader has filled the rest.

// Why segments of `bytes` for each of `ranks` do not fit, with what to do; none where they do.
Failure why_no_room(size_t bytes, int ranks);

// Have the system give all pages of this memory now, filled with zeros. False where it has no room for them.
bool commit(std::byte* memory, size_t bytes);

// Of a rank for whose segment commit() has failed.
Failure no_room_left(size_t bytes, int ranks);

}  // namespace hvd
