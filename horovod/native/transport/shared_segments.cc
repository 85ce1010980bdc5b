#include "transport/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "transport/tcp/handshake.h"

namespace hvd {
namespace {

constexpr char kPrefix[] = "/horovod-";

std::string drawn_name() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = kPrefix;
  for (const std::byte byte : draw_nonce()) {
    name += kDigits[std::to_integer<unsigned>(byte) >> 4];
    name += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return name;
}

[[noreturn]] void refuse(const std::string& what, const std::string& name) {
  throw StartupError("shared memory " + name + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

SharedSegment::SharedSegment(size_t bytes) : name_(drawn_name()), bytes_(bytes) {
  const int descriptor = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) refuse("it cannot be made", name_);
  is_named_ = true;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    close(descriptor);
    unlink();
    refuse("it has no room", name_);
  }
  map(descriptor);
}

SharedSegment::SharedSegment(const std::string& name, size_t bytes) : name_(name), bytes_(bytes) {
  const int descriptor = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) refuse("it cannot be opened", name);
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0 || facts.st_uid != geteuid() || facts.st_size != static_cast<off_t>(bytes)) {
    close(descriptor);
    throw StartupError("shared memory " + name + " is not what a rank of this job has made");
  }
  map(descriptor);
}

void SharedSegment::map(int descriptor) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int code = errno;
  close(descriptor);
  if (memory == MAP_FAILED) {
    unlink();
    errno = code;
    refuse("it cannot be mapped", name_);
  }
  memory_ = static_cast<std::byte*>(memory);
}

SharedSegment::~SharedSegment() {
  unlink();
  munmap(memory_, bytes_);
}

void SharedSegment::unlink() {
  if (is_named_) shm_unlink(name_.c_str());
  is_named_ = false;
}

}  // namespace hvd
