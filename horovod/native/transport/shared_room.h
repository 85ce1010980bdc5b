// Room for the memory that ranks of a host share, in the file system where it is made: /dev/shm, 64 MB in a container of
// Docker. The system takes files there that are larger than what it has, and ends who touches a page too many with SIGBUS,
// perhaps an hour later, when a data loader has filled the rest.
#pragma once

#include <cstddef>
#include <string>

namespace hvd {

// Why segments of `bytes` for each of `ranks` do not fit, with what to do; empty where they do.
std::string why_no_room(size_t bytes, int ranks);

// Have the system give all pages of this memory now, filled with zeros. False where it has no room for them.
bool commit(std::byte* memory, size_t bytes);

// The complaint of a rank for whose segment commit() has failed.
std::string no_room_left(size_t bytes, int ranks);

}  // namespace hvd
