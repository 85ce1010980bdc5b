#include "transport/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/process.h"

namespace hvd {
namespace {

constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC; older C libraries lack it and the call

[[noreturn]] void refuse(const std::string& what) {
  throw StartupError(Said::shared_memory_failed, {.others = {{"what", what}, {"why", std::strerror(errno)}}});
}

// Open MPI's setting of the folder; other MPIs always use /dev/shm.
const char* folder() {
  const char* named = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  return named != nullptr && *named != '\0' ? named : "/dev/shm";
}

// The bytes that MPI needs beside the segments, and its reserve.
size_t with_margin(size_t bytes) { return bytes + bytes / 16 + (size_t{64} << 10); }

std::string in_mib(unsigned long long bytes) {
  const unsigned long long tenths = bytes * 10 >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

Failure no_room(size_t bytes, int ranks, const std::string& has) {
  const std::string needed = in_mib(with_margin(bytes * static_cast<size_t>(ranks)));
  return {Said::no_room,
          {.others = {{"path", folder()}, {"host", host_name()}, {"has", has}, {"count", ranks}, {"needed", needed}}}};
}

}  // namespace

SharedSegment::SharedSegment(size_t bytes)
    : bytes_(bytes), descriptor_(static_cast<int>(syscall(SYS_memfd_create, "horovod", kCloseOnExec))) {
  if (descriptor_ < 0) refuse("cannot be made");
  name_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    close(descriptor_);
    refuse("has no room for " + std::to_string(bytes) + " bytes");
  }
  map("cannot be mapped");
}

SharedSegment::SharedSegment(const std::string& name, size_t bytes)
    : name_(name), bytes_(bytes), descriptor_(open(name.c_str(), O_RDWR | O_CLOEXEC)) {
  if (descriptor_ < 0) refuse("of another rank, " + name + ", cannot be opened");
  struct stat facts{};
  if (fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != static_cast<off_t>(bytes)) {
    close(descriptor_);
    throw StartupError(Said::shared_memory_foreign, {.others = {{"name", name}}});
  }
  map("of another rank, " + name + ", cannot be mapped");
  let_go();
}

void SharedSegment::map(const std::string& what) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    let_go();
    errno = code;
    refuse(what);
  }
  memory_ = static_cast<std::byte*>(memory);
}

SharedSegment::~SharedSegment() {
  let_go();
  munmap(memory_, bytes_);
}

void SharedSegment::let_go() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Failure why_no_room(size_t bytes, int ranks) {
  struct statvfs space{};
  if (statvfs(folder(), &space) != 0) return {};  // then MPI uses another place
  if (space.f_blocks == 0) return {};             // no limit
  const unsigned long long unit = space.f_frsize;
  const unsigned long long free = space.f_bavail * unit;
  if (free >= with_margin(bytes * static_cast<size_t>(ranks))) return {};
  return no_room(bytes, ranks, in_mib(free) + " of its " + in_mib(space.f_blocks * unit) + " are free");
}

// Uses a system call that writes: without room it returns EFAULT, while a store would raise SIGBUS. MADV_POPULATE_WRITE does
// the same, but needs Linux 5.14.
bool commit(std::byte* memory, size_t bytes) {
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  if (zeros < 0) return true;  // cannot check
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

Failure no_room_left(size_t bytes, int ranks) {
  const Failure why = why_no_room(bytes, ranks);
  return why.is_any() ? why : no_room(bytes, ranks, "somebody else was quicker to fill it");
}

}  // namespace hvd
