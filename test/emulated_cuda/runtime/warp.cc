#include <bit>

#include "block.h"

namespace emulated_cuda {
namespace {

uint64_t combined(Meeting operation, uint64_t a, uint64_t b) {
  const auto left = static_cast<uint32_t>(a), right = static_cast<uint32_t>(b);
  const auto signed_left = static_cast<int32_t>(left), signed_right = static_cast<int32_t>(right);
  switch (operation) {
    case Meeting::kAdd:
      return left + right;
    case Meeting::kMin:
      return std::min(left, right);
    case Meeting::kMax:
      return std::max(left, right);
    case Meeting::kMinSigned:
      return static_cast<uint32_t>(std::min(signed_left, signed_right));
    case Meeting::kMaxSigned:
      return static_cast<uint32_t>(std::max(signed_left, signed_right));
    case Meeting::kAnd:
      return left & right;
    case Meeting::kOr:
      return left | right;
    case Meeting::kXor:
      return left ^ right;
    default:
      return 0;
  }
}

template <typename Use>
void for_each_lane(unsigned lanes, Use use) {
  for (; lanes != 0; lanes &= lanes - 1) use(std::countr_zero(lanes));
}

uint64_t reduced(const Warp& warp, Meeting operation, unsigned lanes) {
  uint64_t result = warp.lanes[std::countr_zero(lanes)].value;
  for_each_lane(lanes & (lanes - 1), [&](int lane) { result = combined(operation, result, warp.lanes[lane].value); });
  return result;
}

uint64_t lanes_with(const Warp& warp, unsigned lanes, uint64_t value) {
  uint64_t found = 0;
  for_each_lane(lanes, [&](int lane) { found |= warp.lanes[lane].value == value ? uint64_t{1} << lane : 0; });
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
      const uint64_t all = lanes_with(warp, lanes, 1);
      for_each_lane(lanes, [&](int i) { warp.lanes[i].result = all; });
      break;
    }
    case Meeting::kMatch:
      for_each_lane(lanes, [&](int i) { warp.lanes[i].result = lanes_with(warp, lanes, warp.lanes[i].value); });
      break;
    default: {
      const uint64_t all = reduced(warp, operation, lanes);
      for_each_lane(lanes, [&](int i) { warp.lanes[i].result = all; });
    }
  }
  warp.meeting &= ~mask;
  warp.ready |= lanes;
}

}  // namespace emulated_cuda
