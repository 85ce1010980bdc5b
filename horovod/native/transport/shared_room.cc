#include "transport/shared_room.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/process.h"

namespace hvd {
namespace {

// Open MPI's name for another folder; others have no choice.
const char* folder() {
  const char* named = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  return named != nullptr && *named != '\0' ? named : "/dev/shm";
}

// What MPI keeps beside the segments, and asks to be left over.
size_t with_margin(size_t bytes) { return bytes + bytes / 16 + (size_t{64} << 10); }

std::string in_mib(unsigned long long bytes) {
  const unsigned long long tenths = bytes * 10 >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

std::string complaint(size_t bytes, int ranks, const std::string& has) {
  const size_t needed = with_margin(bytes * static_cast<size_t>(ranks));
  return std::string(folder()) + " of " + host_name() + " is too small: " + has + ", and its " + std::to_string(ranks) +
         " ranks need " + in_mib(needed) +
         " there to exchange gradients. Enlarge it (in Docker `docker run --shm-size=1g ...`, " +
         "in Kubernetes a volume in memory, else `mount -o remount,size=1g /dev/shm`), or set HOROVOD_TRANSPORT=mpi or tcp, "
         "which are slower";
}

}  // namespace

std::string why_no_room(size_t bytes, int ranks) {
  struct statvfs space{};
  if (statvfs(folder(), &space) != 0) return "";  // then MPI has another place
  if (space.f_blocks == 0) return "";             // it has no limit
  const unsigned long long unit = space.f_frsize;
  const unsigned long long free = space.f_bavail * unit;
  if (free >= with_margin(bytes * static_cast<size_t>(ranks))) return "";
  return complaint(bytes, ranks, in_mib(free) + " of its " + in_mib(space.f_blocks * unit) + " are free");
}

// By a system call that writes: where a store of ours would be SIGBUS, it says EFAULT. MADV_POPULATE_WRITE is for this, and
// unknown to kernels before 5.14.
bool commit(std::byte* memory, size_t bytes) {
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (zeros < 0) return true;  // no way to tell
  while (bytes > 0) {
    const ssize_t got = read(zeros, memory, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    memory += got;
    bytes -= static_cast<size_t>(got);
  }
  close(zeros);
  return bytes == 0;
}

std::string no_room_left(size_t bytes, int ranks) {
  const std::string why = why_no_room(bytes, ranks);
  return why.empty() ? complaint(bytes, ranks, "somebody else was quicker to fill it") : why;
}

}  // namespace hvd
