// Messages and bulk data over MPI point-to-point calls.
#pragma once

#include <mpi.h>

#include <memory>

#include "transport/transport.h"

namespace hvd {

// `generation` tells the transports of one process apart: a message that an earlier one left unread is not taken for this
// one's. All ranks make their transports in the same order.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology, int generation);

}  // namespace hvd
