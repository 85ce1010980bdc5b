// Messages and bulk data over MPI point-to-point calls.
#pragma once

#include <mpi.h>

#include <memory>

#include "transport/transport.h"

namespace hvd {

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm world, const Topology& topology);

}  // namespace hvd
