#include "transport/link_costs.h"

#include <cstdio>

namespace hvd {

std::string to_text(const LinkCosts& costs) {
  char text[128];
  std::snprintf(text, sizeof text, "memory %.1f us + %.1f GB/s, network %.0f us + %.2f Gbit/s", costs.memory_latency * 1e6,
                1e-9 / costs.memory_byte, costs.network_latency * 1e6, 8e-9 / costs.network_byte);
  return text;
}

}  // namespace hvd
