#include "transport/topology.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace hvd {
namespace {

using Figures = std::array<double, 4>;
using std::chrono::duration, std::chrono::steady_clock;

// A shaped link (such as tc's token bucket) is faster until its saved tokens are used up, which the first small transfer does.
constexpr size_t kFewBytes = size_t{512} << 10, kLarge = size_t{2} << 20;
// Seconds of that small transfer. If it takes longer than kPatience, a large one would delay the start noticeably. If it takes
// less than kQuick, it is measured several times, and the fastest counts, because other load only slows it down.
constexpr double kPatience = 0.2, kQuick = 0.02;
constexpr int kRounds = 9, kTransfers = 3;

template <typename F>
double seconds_of(F f) {
  const auto start = steady_clock::now();
  f();
  return duration<double>(steady_clock::now() - start).count();
}

template <typename F>
double median_seconds_of(F f) {
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) seconds.push_back(seconds_of(f));
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

template <typename F>
double fastest_seconds_of(int times, F f) {
  double seconds = seconds_of(f);
  for (int i = 1; i < times; ++i) seconds = std::min(seconds, seconds_of(f));
  return seconds;
}

// Seconds per byte, from the difference of the two transfers. By its bytes the small transfer takes a quarter of the large
// one's time; the clamp removes what other processes add to it or hide.
double byte_between(double small, double large) {
  const double whole = large / static_cast<double>(kLarge);
  return std::clamp((large - small) / static_cast<double>(kLarge - kFewBytes), 0.67 * whole, whole);
}

// Returns the largest figures of all ranks, on every rank.
Figures largest_of_all(Transport& transport, Figures mine) {
  std::vector<Figures> all(static_cast<size_t>(transport.size()), mine);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  const bool is_first = transport.rank() == 0;
  for (int r = 1; r < transport.size() && is_first; ++r) {
    incoming.push_back({r, &all[static_cast<size_t>(r)], sizeof(Figures)});
  }
  if (!is_first) outgoing.push_back({0, &mine, sizeof mine});
  transport.exchange(outgoing, incoming);
  for (const Figures& one : all) {
    if (!is_first) break;
    std::transform(one.begin(), one.end(), mine.begin(), mine.begin(), [](double a, double b) { return std::max(a, b); });
  }
  outgoing.clear();
  incoming.clear();
  for (int r = 1; r < transport.size() && is_first; ++r) outgoing.push_back({r, &mine, sizeof mine});
  if (!is_first) incoming.push_back({0, &mine, sizeof mine});
  transport.exchange(outgoing, incoming);
  return mine;
}

// A ring of ranks: each sends to the next and receives from the previous one.
class Neighbours {
 public:
  Neighbours(Transport& transport, const std::vector<int>& members) : transport_(transport) {
    const auto own = std::find(members.begin(), members.end(), transport.rank());
    takes_part_ = own != members.end() && members.size() > 1;
    if (!takes_part_) return;
    const auto position = static_cast<size_t>(own - members.begin());
    next_ = members[(position + 1) % members.size()];
    previous_ = members[(position + members.size() - 1) % members.size()];
  }
  bool takes_part() const { return takes_part_; }
  void shift(std::byte* out, std::byte* in, size_t bytes) {
    const Outgoing outgoing[] = {{next_, out, bytes}};
    const Incoming incoming[] = {{previous_, in, bytes}};
    transport_.exchange(outgoing, incoming);
  }

 private:
  Transport& transport_;
  bool takes_part_ = false;
  int next_ = 0, previous_ = 0;
};

}  // namespace

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

std::string to_text(const LinkCosts& costs) {
  char text[128];
  std::snprintf(text, sizeof text, "memory %.1f us + %.1f GB/s, network %.0f us + %.2f Gbit/s", costs.memory_latency * 1e6,
                1e-9 / costs.memory_byte, costs.network_latency * 1e6, 8e-9 / costs.network_byte);
  return text;
}

LinkCosts measure_links(Transport& transport) {
  const Topology& topology = transport.topology();
  LinkCosts costs;
  if (topology.size == 1) return costs;
  auto memory = std::make_unique<std::byte[]>(2 * kLarge);  // filled with zeros, so that its pages exist before the measurement
  std::byte* const out = memory.get();
  std::byte* const in = out + kLarge;
  const double pass = median_seconds_of([&] { std::memcpy(in, out, kFewBytes); }) / static_cast<double>(kFewBytes);

  std::vector<int> first_of_each_host;
  for (const std::vector<int>& ranks : topology.hosts) first_of_each_host.push_back(ranks.front());
  Neighbours ring(transport, first_of_each_host);
  Figures figures = {pass, 0, 0, 0};
  if (ring.takes_part()) {
    ring.shift(out, in, 8);  // opens the connections
    figures[1] = median_seconds_of([&] { ring.shift(out, in, 8); });
    figures[2] = seconds_of([&] { ring.shift(out, in, kFewBytes); });
  }
  figures = largest_of_all(transport, figures);
  const bool has_network = figures[1] != 0;
  if (has_network && figures[2] < kPatience) {
    const int times = figures[2] < kQuick ? kTransfers : 1;
    if (ring.takes_part()) {
      figures[3] = fastest_seconds_of(times, [&] { ring.shift(out, in, kLarge); });
      if (times > 1) figures[2] = fastest_seconds_of(times, [&] { ring.shift(out, in, kFewBytes); });
    }
    figures = largest_of_all(transport, figures);
  }
  costs.memory_byte = figures[0];
  if (has_network) {
    costs.network_latency = figures[1];
    costs.network_byte = figures[3] > 0 ? byte_between(figures[2], figures[3]) : figures[2] / static_cast<double>(kFewBytes);
  }
  return costs;
}

}  // namespace hvd
