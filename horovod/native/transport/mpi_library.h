// Finding and loading libmpi and, through it, libhorovod_mpi.so. One MPI per process: a second one is refused by name.
#pragma once

#include <string>
#include <vector>

#include "transport/mpi_job.h"

namespace hvd {

struct MpiLibrary {
  std::string path;  // of libmpi
  MpiJob* opened_job;
  MpiJob& job() const { return *opened_job; }
  std::string description() const { return path + " (" + job().version() + ")"; }
};

// False if this build has no MPI (HOROVOD_WITHOUT_MPI=1).
bool mpi_library_is_installed();

// How MPI is to be entered: which ranks of MPI_COMM_WORLD form the job (empty: all), and with which thread level.
struct MpiWish {
  std::vector<int> ranks;
  bool threads_multiple = true;
};

// Looks for libmpi in <prefix>/lib first, then where the build recorded it; only there if `prefix` is empty, as it is for a
// build against a system MPI, which must not pick up a wheel. Throws StartupError.
MpiLibrary open_mpi_library(const std::string& prefix, const std::string& launch_evidence, const MpiWish& wish);

// ": started by /usr/bin/orted" where the parent process tells, else "".
std::string launcher_path_hint();

}  // namespace hvd
