// The factory: the one place that knows every transport and decides which of them a process gets; and what finds MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "transport/bootstrap.h"

namespace hvd {

// ---- MPI ------------------------------------------------------------------------------------------------------------

// Loading libmpi and the library of ours that was compiled for it. One MPI per process: a second one is refused by name.
struct MpiLibrary {
  std::string path;  // of libmpi
  MpiJob* opened_job;
  MpiJob& job() const { return *opened_job; }
  std::string description() const { return path + " (" + job().version() + ")"; }
};

// False if this build has no part for an MPI (HOROVOD_WITHOUT_MPI=1).
bool mpi_library_is_installed();

// How MPI is to be entered: which ranks of MPI_COMM_WORLD form the job (empty: all), and with which thread level.
struct MpiWish {
  std::vector<int> ranks;
  bool threads_multiple = true;
};

// Loads `libmpi` first, a path. If it is empty, a build against one MPI takes libmpi where it recorded it, as one against a
// system MPI has to, which must not pick up a wheel; and a build for every MPI has none. Such a build prefers the one that
// this process has loaded already, mpi4py's say. The path comes from horovod/common/mpi_here.py. Throws StartupError.
MpiLibrary open_mpi_library(const std::string& libmpi, const std::string& launch_evidence, const MpiWish& wish);

// ": started by /usr/bin/orted" where the parent process tells, else "".
std::string launcher_path_hint();

// ---- transports -----------------------------------------------------------------------------------------------------

// What the launcher has told this process, which horovod/common/launched.py knows to read.
struct Launch {
  int size = 1;          // 0 if it does not say
  std::string evidence;  // "OMPI_COMM_WORLD_SIZE=4"; empty: there is none
};

// The job of mpirun that this process was started in. `libmpi`: see open_mpi_library. `ranks` are those of the launched ones
// that form the job, in its order; empty: all. Collective over them; throws StartupError.
MpiLibrary join_mpi(const Settings& settings, const std::string& libmpi, const Launch& launch, const std::vector<int>& ranks);

// HOROVOD_TRANSPORT asks for MPI, which needs ranks that MPI has started; or for TCP connections between any ranks. Ranks of
// one host may share memory otherwise.
bool asks_for_mpi(const Settings& settings);
bool asks_for_connections(const Settings& settings);
bool may_share_memory(const Settings& settings);
// For ranks that MPI has not started: a request for MPI becomes one for connections, without shared memory.
void do_without_mpi(Settings& settings);

struct OpenedTransport {
  std::unique_ptr<Transport> transport;
  std::string mpi_library;  // path and version of the MPI in use, "" without
  bool mpi_threads_multiple = false;
};

// Joins the job this process was started in, as join_mpi does. Without a launcher that is a world of one, which needs no MPI.
OpenedTransport open_transport(const Settings& settings, const std::string& libmpi, const Launch& launch,
                               const std::vector<int>& ranks);

// What the settings want of a job whose ranks have met, after they have compared them. Collective; throws StartupError.
std::unique_ptr<Transport> open_transport_of(Bootstrap& job, const Settings& settings);

// Leaves MPI if open_transport entered it. Collective, at the end of the process.
void close_mpi();

// Has close_mpi() called when the process ends with code 0, after the interpreter has. With another code it is not: finalising
// waits for the other ranks, and the launcher ends those when it sees how this one ended.
void close_mpi_at_exit();

}  // namespace hvd
