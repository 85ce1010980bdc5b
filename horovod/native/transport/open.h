// The factory of transports: decides which transport a process gets, and loads MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "transport/bootstrap.h"

namespace hvd {

// ---- MPI ------------------------------------------------------------------------------------------------------------

// A loaded libmpi, and our library compiled for it. A process may have one MPI only; a second one is an error that names both.
struct MpiLibrary {
  std::string path;  // of libmpi
  MpiJob& job;
  std::string description() const { return path + " (" + job.version() + ")"; }
};

// ---- transports -----------------------------------------------------------------------------------------------------

// The launcher's facts about this process, read by horovod/common/launched.py.
struct Launch {
  int size = 1;          // 0 if unknown
  std::string evidence;  // such as "OMPI_COMM_WORLD_SIZE=4"; empty: no launcher
};

// Joins the mpirun job that started this process. Loads `libmpi`, a path from horovod/common/mpi_here.py, before our library. If
// it is empty, a build for one MPI uses the libmpi of its build. A build for every MPI prefers the libmpi that the process has
// already loaded (such as mpi4py's), and fails without either. `ranks` are the launched ranks that form the job, in its order;
// empty: all. Collective over them; throws StartupError.
MpiLibrary join_mpi(const Settings& settings, const std::string& libmpi, const Launch& launch, const std::vector<int>& ranks);

// The meaning of HOROVOD_TRANSPORT: MPI, for ranks that MPI has started; TCP connections between any ranks; or shared memory on
// one host if possible.
bool asks_for_mpi(const Settings& settings);
bool asks_for_connections(const Settings& settings);
bool may_share_memory(const Settings& settings);
// For ranks that MPI has not started: replaces MPI by TCP connections without shared memory.
void do_without_mpi(Settings& settings);

struct OpenedTransport {
  std::unique_ptr<Transport> transport;
  std::string mpi_library;  // path and version of the MPI in use, or ""
  bool mpi_threads_multiple = false;
};

// Joins this process's job like join_mpi(). Without a launcher the job is a world of one, which needs no MPI.
OpenedTransport open_transport(const Settings& settings, const std::string& libmpi, const Launch& launch,
                               const std::vector<int>& ranks);

// Compares the settings of a job's ranks, and opens the transport that they require. Collective; throws StartupError.
std::unique_ptr<Transport> open_transport_of(Bootstrap& job, const Settings& settings);

// Finalises MPI if open_transport() initialised it. Collective, at the end of the process.
void close_mpi();

// Calls close_mpi() after the interpreter has ended if the process exits with code 0. Otherwise MPI is not finalised, because
// that waits for the other ranks, and the launcher ends those when this one fails.
void close_mpi_at_exit();

}  // namespace hvd
