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

}  // namespace hvd
