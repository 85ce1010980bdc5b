// Memory that processes of one host share, made by POSIX shm_open.
#pragma once

#include <cstddef>
#include <string>

namespace hvd {

// A mapping, until it is destroyed. The one that made the segment also takes its name away, if unlink() has not.
class SharedSegment {
 public:
  // Makes one under a name that nobody can guess. Throws StartupError.
  explicit SharedSegment(size_t bytes);
  // Maps one that another process of this user has made. Throws StartupError.
  SharedSegment(const std::string& name, size_t bytes);
  SharedSegment(const SharedSegment&) = delete;
  ~SharedSegment();

  std::byte* memory() const { return memory_; }
  const std::string& name() const { return name_; }
  void unlink();  // those who have mapped it keep it

 private:
  void map(int descriptor);

  std::string name_;
  const size_t bytes_;
  bool is_named_ = false;
  std::byte* memory_ = nullptr;
};

}  // namespace hvd
