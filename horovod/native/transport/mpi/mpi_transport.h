// Messages and bulk data over MPI point-to-point calls, and the errors of MPI calls.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "transport/transport.h"

namespace hvd {

// Turn MPI return codes into errors.
inline std::string described(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

inline void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  throw InternalError(Said::mpi_call_failed, {.others = {{"call", call}, {"why", described(code)}}});
}

// `generation` separates the transports of one process, so that no transport reads an earlier one's messages. All ranks must
// make their transports in the same order.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology, int generation);

}  // namespace hvd
