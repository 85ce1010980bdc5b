// The places of a job's ranks, and the cost of moving bytes between them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hvd {

class Transport;

// Where a rank stands in its job. Local: among the ranks of its host. Cross: among the ranks with its local rank.
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

// Of a rank, where `hosts` are as above.
Topology topology_of(int rank, const std::vector<std::vector<int>>& hosts);

// The ranks of each host, from every rank's host; ranks with the same name share one.
std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& host_of_rank);

// Which host a rank is on.
size_t host_of(int rank, const std::vector<std::vector<int>>& hosts);

// ---- costs ----------------------------------------------------------------------------------------------------------

// What moving bytes costs in this job: measured once when it starts, and the same on every rank. Seconds. The defaults stand
// where nothing has been measured: memory of today and Ethernet of 10 Gbit/s.
struct LinkCosts {
  double memory_latency = 3e-6;    // until a rank of the same host has noticed
  double memory_byte = 1e-10;      // to read a byte and write it, or to add it to another
  double network_latency = 50e-6;  // until a rank of another host has noticed
  double network_byte = 0.85e-9;   // of the slowest link that was measured, in one direction

  bool operator==(const LinkCosts&) const = default;
};

// "memory 3.0 us + 10.0 GB/s, network 50 us + 9.4 Gbit/s"
std::string to_text(const LinkCosts& costs);

// Measures: each rank its memory; the first rank of each host the way to the next host's. Of the ranks' figures the slowest
// counts. Takes some milliseconds, on a link of 1 Gbit/s about a tenth of a second. Collective over all ranks.
LinkCosts measure_links(Transport& transport);

}  // namespace hvd
