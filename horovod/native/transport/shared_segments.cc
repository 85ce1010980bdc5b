#include "transport/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hvd {
namespace {

constexpr unsigned kCloseOnExec = 1;  // MFD_CLOEXEC, which older C libraries do not know, nor the call

[[noreturn]] void refuse(const std::string& what) { throw StartupError("shared memory " + what + ": " + std::strerror(errno)); }

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
    throw StartupError("shared memory " + name + " is not what a rank of this job has made");
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

}  // namespace hvd
