// The places of a job's ranks, and the cost of moving bytes between them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hvd {

class Transport;

// A rank's place in its job. Local: among the ranks of its host. Cross: among the ranks with its local rank.
struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;              // every host has the same number of ranks
  std::vector<std::vector<int>> hosts;  // ranks of each host by local rank; hosts in the order of their first rank
};

// The topology of a rank, with `hosts` as above.
Topology topology_of(int rank, const std::vector<std::vector<int>>& hosts);

// Groups ranks by the names of their hosts: the ranks of each host.
std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& host_of_rank);

// The index of a rank's host.
size_t host_of(int rank, const std::vector<std::vector<int>>& hosts);

// ---- costs ----------------------------------------------------------------------------------------------------------

// The costs of moving bytes in this job, in seconds: measured once at the start, the same on every rank. The defaults assume
// current memory and 10 Gbit/s Ethernet.
struct LinkCosts {
  double memory_latency = 3e-6;    // until a rank of the same host notices
  double memory_byte = 1e-10;      // to read and write a byte, or to add it to another
  double network_latency = 50e-6;  // until a rank of another host notices
  double network_byte = 0.85e-9;   // of the slowest measured link, in one direction

  bool operator==(const LinkCosts&) const = default;
};

// "memory 3.0 us + 10.0 GB/s, network 50 us + 9.4 Gbit/s"
std::string to_text(const LinkCosts& costs);

// Each rank measures its memory, and the first rank of each host the link to the next host. The slowest figures of all ranks
// count. Takes some milliseconds; on a 1 Gbit/s link about a tenth of a second. Collective over all ranks.
LinkCosts measure_links(Transport& transport);

}  // namespace hvd
