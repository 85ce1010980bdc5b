// What moving bytes costs in this job: measured once when it starts, and the same on every rank.
#pragma once

#include <string>

namespace hvd {

class Transport;

// Seconds. The defaults stand where nothing has been measured: memory of today and Ethernet of 10 Gbit/s.
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
