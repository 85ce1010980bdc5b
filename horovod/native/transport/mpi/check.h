// MPI return codes to errors.
#pragma once

#include <mpi.h>

#include <string>

#include "base/error.h"

namespace hvd {

inline std::string described(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  throw InternalError(std::string(call) + " failed: " + described(code) +
                      "; a peer may have ended, or the network between the hosts may be down");
}

}  // namespace hvd
