// Memory that processes of one host share: files that have no name but that of a descriptor, so nothing is left of them when
// the last process that has mapped them ends, however it does.
#pragma once

#include <cstddef>
#include <string>

namespace hvd {

// A mapping, until it is destroyed.
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

}  // namespace hvd
