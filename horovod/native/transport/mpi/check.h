// MPI return codes to errors.
#pragma once

#include <mpi.h>

#include <string>

#include "base/error.h"

namespace hvd {

inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw InternalError(std::string(call) + " failed: " + std::string(text, static_cast<size_t>(length)) +
                      "; a peer may have ended, or the network between the hosts may be down");
}

}  // namespace hvd
