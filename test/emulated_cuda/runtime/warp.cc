#include <bit>

#include "block.h"

namespace emulated_cuda {
namespace {

template <typename Use>
void for_each_lane(unsigned lanes, Use use) {
  for (; lanes != 0; lanes &= lanes - 1) use(std::countr_zero(lanes));
}

uint64_t lanes_that_say_yes(const Warp& warp, unsigned lanes) {
  uint64_t found = 0;
  for_each_lane(lanes, [&](int lane) { found |= warp.lanes[lane].value << lane; });
  return found;
}

}  // namespace

uint64_t Block::meet(Meeting operation, unsigned mask, uint64_t value, int source) {
  Warp& warp = warps_[warp_];
  const unsigned bit = 1u << lane_number_;
  Lane& lane = *lane_;
  if ((mask & bit) == 0) fail("a lane takes part in an operation whose mask does not name it");
  lane.operation = operation;
  lane.mask = mask;
  lane.value = value;
  lane.source = source & 31;
  warp.meeting |= bit;
  warp.ready &= ~bit;
  if ((warp.meeting & mask) == (mask & warp.existing & ~warp.gone)) complete_meeting(warp, mask);
  go_on_elsewhere(lane.fiber);
  return lane.result;
}

void Block::complete_meeting(Warp& warp, unsigned mask) {
  const unsigned lanes = warp.meeting & mask;
  const Meeting operation = warp.lanes[std::countr_zero(lanes)].operation;
  for_each_lane(lanes, [&](int i) {
    if (warp.lanes[i].mask != mask) fail("lanes of a warp meet with different masks");
    if (warp.lanes[i].operation != operation) fail("lanes of a warp meet at different operations");
  });
  switch (operation) {
    case Meeting::kSync:
      break;
    case Meeting::kShuffle:
      for_each_lane(lanes, [&](int i) { warp.lanes[i].result = warp.lanes[warp.lanes[i].source].value; });
      break;
    case Meeting::kBallot: {
      const uint64_t all = lanes_that_say_yes(warp, lanes);
      for_each_lane(lanes, [&](int i) { warp.lanes[i].result = all; });
      break;
    }
  }
  warp.meeting &= ~mask;
  warp.ready |= lanes;
}

}  // namespace emulated_cuda
