#include "collective/host_level.h"

#include <algorithm>

#include "base/memory.h"
#include "collective/plan.h"

namespace hvd {

HostRole::HostRole(const RankGroup& group)
    : hosts(static_cast<int>(group.hosts().size())), carriers(carriers_of(group.hosts())) {
  for (const std::vector<int>& ranks : group.hosts()) {
    const auto found = std::find(ranks.begin(), ranks.end(), group.rank());
    if (found == ranks.end()) continue;
    host = static_cast<int>(&ranks - group.hosts().data());
    local_rank = static_cast<int>(found - ranks.begin());
    locals = ranks;
  }
  if (!carries()) return;
  for (const std::vector<int>& ranks : group.hosts()) parties.push_back(ranks[static_cast<size_t>(local_rank)]);
}

size_t HostSteps::slice_bytes(uint32_t step, int slice) const {
  const Steps& of = slices[static_cast<size_t>(slice)];
  return memory.send_offset(of, step, of.buckets());
}

size_t HostSteps::send_offset(uint32_t step, int slice, int rank) const {
  size_t offset = 0;
  for (int before = 0; before < slice; ++before) {
    if (is_sent(before, rank)) offset += aligned(slice_bytes(step, before));
  }
  return offset;
}

size_t HostSteps::receive_bytes(uint32_t step, int slice) const {
  const Steps& of = slices[static_cast<size_t>(slice)];
  return of.offset(step, of.parties());
}

}  // namespace hvd
