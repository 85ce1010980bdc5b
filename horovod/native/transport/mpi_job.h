// What the core asks of an MPI library. Implemented in libhorovod_mpi.so (transport/mpi/), which alone links libmpi and is
// opened on need; this header is all the two have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace hvd {

class MpiJob {
 public:
  virtual ~MpiJob() = default;
  virtual const Topology& topology() const = 0;
  virtual std::string version() const = 0;    // as MPI_Get_library_version says it, first line
  virtual bool threads_multiple() const = 0;  // MPI_THREAD_MULTIPLE is in force
  virtual void barrier() = 0;
  // Whether all ranks have given the same. Collective.
  virtual bool all_give_the_same(uint32_t digest) = 0;
  // Every rank's text, by rank. Collective.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // One zeroed-or-stale segment of `bytes` for each rank of this host, mapped by all of them; by local rank. Collective over
  // the job. The segments live until MPI is finalised; asking again for the same size gives the same segments.
  virtual std::vector<std::byte*> share(size_t bytes) = 0;
  virtual std::unique_ptr<Transport> make_transport() = 0;
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
