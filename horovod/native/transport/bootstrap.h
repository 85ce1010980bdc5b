// The ranks' common work before they have a transport: find out where they are, compare what they were told, share memory. MPI
// does that in a library of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace hvd {

// One for each rank of this host, mapped by all of them.
struct SharedSegments {
  std::vector<std::byte*> by_local_rank;
  std::shared_ptr<void> keep_alive;  // what has to live as long as they are used; null: they live until the process ends
};

// A job whose ranks have met. All calls but topology() are collective over its ranks.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual const Topology& topology() const = 0;
  virtual void barrier() = 0;
  // Whether all ranks have given the same.
  virtual bool all_give_the_same(uint32_t digest) = 0;
  // Every rank's text, by rank.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // Segments of `bytes` each, zeroed or stale. They may be those of an earlier call. Throws StartupError on all ranks alike.
  virtual SharedSegments share(size_t bytes) = 0;
  // What carries messages and transfers between all ranks. Asked for once.
  virtual std::unique_ptr<Transport> make_transport() = 0;
};

// What the core asks of an MPI library. Implemented in libhorovod_mpi*.so (transport/mpi/), which alone uses libmpi and is
// opened on need; this header is all the two have in common.
class MpiJob : public Bootstrap {
 public:
  virtual std::string version() const = 0;    // as MPI_Get_library_version says it, first line
  virtual bool threads_multiple() const = 0;  // MPI_THREAD_MULTIPLE is in force
};

// Entry points of libhorovod_mpi*.so, which owns the jobs. A process is in one for each choice of ranks it has asked for.
//
// Initialises MPI unless somebody has done so. `ranks` are of MPI_COMM_WORLD, in the order of the job's own; empty: all.
// Collective over them. Null and an error if it fails.
using OpenMpiJob = MpiJob* (*)(const std::vector<int>& ranks, bool threads_multiple, std::string* error);
using FinalizeMpi = void (*)();  // MPI_Finalize if OpenMpiJob initialised MPI

inline constexpr char kOpenMpiJob[] = "hvd_open_mpi_job";
inline constexpr char kFinalizeMpi[] = "hvd_finalize_mpi";

}  // namespace hvd
