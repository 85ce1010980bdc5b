// The factory: the one place that knows every transport and decides which of them a process gets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "transport/transport.h"

namespace hvd {

struct OpenedTransport {
  std::unique_ptr<Transport> transport;
  std::string mpi_library;  // path and version of the MPI in use, "" without
  bool mpi_threads_multiple = false;
};

// Joins the job this process was started in. Without a launcher that is a world of one, which needs no MPI. `prefix` is where
// libmpi is looked for first, the running interpreter's sys.prefix; see open_mpi_library. `ranks` are those of the launched
// ones that form the job, in its order; empty: all. Collective over them; throws StartupError.
OpenedTransport open_transport(const Settings& settings, const std::string& prefix, const std::vector<int>& ranks);

// Leaves MPI if open_transport entered it. Collective, at the end of the process.
void close_mpi();

}  // namespace hvd
