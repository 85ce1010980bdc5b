// What the core asks of an MPI library. Implemented in libhorovod_mpi.so (transport/mpi/), which alone links libmpi and is
// opened on need; this header is all the two have in common.
#pragma once

#include <string>
#include <vector>

#include "transport/bootstrap.h"

namespace hvd {

class MpiJob : public Bootstrap {
 public:
  virtual std::string version() const = 0;    // as MPI_Get_library_version says it, first line
  virtual bool threads_multiple() const = 0;  // MPI_THREAD_MULTIPLE is in force
};

// Entry points of libhorovod_mpi.so, which owns the jobs. A process is in one for each choice of ranks it has asked for.
//
// Initialises MPI unless somebody has done so. `ranks` are of MPI_COMM_WORLD, in the order of the job's own; empty: all.
// Collective over them. Null and an error if it fails.
using OpenMpiJob = MpiJob* (*)(const std::vector<int>& ranks, bool threads_multiple, std::string* error);
using FinalizeMpi = void (*)();  // MPI_Finalize if OpenMpiJob initialised MPI

inline constexpr char kOpenMpiJob[] = "hvd_open_mpi_job";
inline constexpr char kFinalizeMpi[] = "hvd_finalize_mpi";

}  // namespace hvd
