// The ranks' common work before they have a transport: find their places, compare settings, share memory. The part that uses
// MPI is a separate library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "transport/transport.h"

namespace hvd {

// Memory shared by the ranks of a host: one segment for each rank, mapped by all.
struct SharedSegments {
  std::vector<std::byte*> by_local_rank;
  std::shared_ptr<void> keep_alive;  // owns the segments; null: they live until the process ends
};

// A job whose ranks have met. All calls except topology() are collective over its ranks.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual const Topology& topology() const = 0;
  virtual void barrier() = 0;
  // Whether all ranks pass the same digest.
  virtual bool all_give_the_same(uint32_t digest) = 0;
  // Returns every rank's text, by rank.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // Returns segments of `bytes` each. Their contents are zeros or stale; an earlier call may have returned them. Throws
  // StartupError on all ranks or on none.
  virtual SharedSegments share(size_t bytes) = 0;
  // Returns the transport between all ranks. Call it once.
  virtual std::unique_ptr<Transport> make_transport() = 0;
};

// Failures as texts for gather(). throw_packed() throws StartupError; its ranks default to `rank`.
inline std::string packed(const Failure& failure) {
  const std::vector<std::byte> bytes = to_bytes(failure);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] inline void throw_packed(const std::string& text, int rank) {
  Failure failure;
  try {
    failure = read_message<Failure>(std::as_bytes(std::span(text)), rank);
  } catch (const InternalError& error) {
    failure = error.failure();
  }
  if (failure.facts.ranks.empty()) failure.facts.ranks = {rank};
  throw StartupError(failure.at_start());
}

// The core's interface to an MPI library. Implemented in libhorovod_mpi*.so (transport/mpi/), which is the only user of libmpi
// and is opened on demand. The two share this header only.
class MpiJob : public Bootstrap {
 public:
  virtual std::string version() const = 0;    // the first line of MPI_Get_library_version
  virtual bool threads_multiple() const = 0;  // whether MPI_THREAD_MULTIPLE is in force
};

// Entry points of libhorovod_mpi*.so, which owns the jobs: one for each list of ranks that the process has asked for.
//
// Initialises MPI if needed. `ranks` are ranks of MPI_COMM_WORLD in the order of the job; empty: all. Collective over them.
// Returns null and sets `error` on failure.
using OpenMpiJob = MpiJob* (*)(const std::vector<int>& ranks, bool threads_multiple, std::string* error);
using FinalizeMpi = void (*)();  // MPI_Finalize if OpenMpiJob initialised MPI

inline constexpr char kOpenMpiJob[] = "hvd_open_mpi_job";
inline constexpr char kFinalizeMpi[] = "hvd_finalize_mpi";

}  // namespace hvd
