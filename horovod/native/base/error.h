// The error tree of the core, mirrored by name in Python (horovod/common/exceptions.py).
//
//   Error
//   ├── InvalidArgument   the caller's mistake, found before anything was sent  -> ValueError
//   ├── StartupError      the job could not be formed                           -> ValueError
//   └── InternalError     ranks disagree, a peer is gone, or the engine stopped -> HorovodInternalError
//
// InternalError is recoverable when ranks disagreed (the job goes on) and fatal when a transport failed.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace hvd {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InvalidArgument : public Error {
 public:
  using Error::Error;
};

class StartupError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

// The caller has let go of memory that it had lent: what is there now is somebody else's.
class MemoryGone : public InternalError {
 public:
  explicit MemoryGone(const std::string& whose)
      : InternalError("the memory of " + whose +
                      " was resized or replaced while the operation was in flight; leave tensors as they are until "
                      "synchronize() has returned") {}
};

// Who of the ranks has what, "rank 0: 64; ranks 1, 2: 128": each value once, in the order of the first rank that has it. `values` are by position in
// `ranks`.
std::string by_rank(const std::vector<int>& ranks, const std::vector<std::string>& values);

}  // namespace hvd
