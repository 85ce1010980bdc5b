// Where the ranks of a job are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hvd {

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

}  // namespace hvd
