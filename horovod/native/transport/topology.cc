#include "transport/topology.h"

#include <algorithm>
#include <map>

namespace hvd {

size_t host_of(int rank, const std::vector<std::vector<int>>& hosts) {
  const auto has_it = [rank](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  return static_cast<size_t>(std::find_if(hosts.begin(), hosts.end(), has_it) - hosts.begin());
}

Topology topology_of(int rank, const std::vector<std::vector<int>>& hosts) {
  Topology topology{.rank = rank, .size = 0, .hosts = hosts};
  for (const std::vector<int>& host : hosts) {
    topology.size += static_cast<int>(host.size());
    topology.homogeneous &= host.size() == hosts.front().size();
  }
  const std::vector<int>& here = hosts[host_of(rank, hosts)];
  topology.local_size = static_cast<int>(here.size());
  topology.local_rank = static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin());
  topology.cross_size = 0;
  for (const std::vector<int>& host : hosts) {
    if (static_cast<int>(host.size()) <= topology.local_rank) continue;
    if (&host == &hosts[host_of(rank, hosts)]) topology.cross_rank = topology.cross_size;
    topology.cross_size += 1;
  }
  return topology;
}

std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& host_of_rank) {
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> numbers;
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const size_t number = numbers.emplace(host_of_rank[rank], hosts.size()).first->second;
    if (number == hosts.size()) hosts.emplace_back();
    hosts[number].push_back(static_cast<int>(rank));
  }
  return hosts;
}

}  // namespace hvd
