#include "collective/device/host_lanes.h"

#include <algorithm>

#include "base/memory.h"
#include "collective/device/device_pieces.h"

namespace hvd {
namespace {

uint32_t steps_of(std::span<const Steps> groups) {
  uint32_t steps = 0;
  for (const Steps& group : groups) steps = std::max(steps, group.count());
  return steps;
}

}  // namespace

HostLanes::HostLanes(HostWorkspace& workspace, std::span<const Steps> groups, double prescale)
    : workspace_(workspace),
      groups_(groups),
      prescale_(prescale),
      dtype_(groups_.front().bucket(0).reduction().dtype),
      is_encoded_(groups_.front().bucket(0).reduction().codec != nullptr),
      codec_(codec_of(groups_.front().bucket(0).reduction())) {
  Device& device = workspace_.device;
  begin_ = device.record(workspace_.stream);
  make_tables();
  const Event ready = device.record(workspace_.stream);  // the tensors are, and the tables
  device.wait(workspace_.encoding, ready);
  device.wait(workspace_.decoding, ready);
  size_t most = 0;
  for (uint32_t step = 0; step < steps_of(groups_); ++step) most = std::max(most, bytes(step));
  const uint32_t depth = std::min(kDepth, steps_of(groups_));
  const DeviceMemory memory = workspace_.on_gpu.take(2 * depth * aligned(most));
  for (uint32_t i = 0; i < depth; ++i) {
    sending_[i].memory = memory.get() + 2 * i * aligned(most);
    receiving_[i].memory = sending_[i].memory + aligned(most);
  }
}

size_t HostLanes::offset(uint32_t step, size_t group) const {
  size_t offset = 0;
  for (size_t before = 0; before < group; ++before) offset += aligned(groups_[before].offset(step, groups_[before].parties()));
  return offset;
}

void HostLanes::make_tables() {
  for (uint32_t step = 0; step < steps_of(groups_); ++step) {
    tables_.begin();
    for (size_t group = 0; group < groups_.size(); ++group) {
      const Steps& steps = groups_[group];
      const size_t base = offset(step, group);
      for (size_t i = 0; i < steps.buckets(); ++i) {
        const size_t message = base + steps.offset(step, static_cast<int>(i));
        add_pieces(steps.bucket(i), steps.range(step, i), {.message = static_cast<int64_t>(message)}, tables_);
      }
    }
  }
  tables_.upload(workspace_.uploads);
}

void HostLanes::send(uint32_t step, std::byte* to) {
  Device& device = workspace_.device;
  Flight& flight = sending(step);
  // Its last copy out of there has been awaited.
  const Event begin = device.record(workspace_.encoding);
  if (is_encoded_) {
    device.kernels().encode(workspace_.encoding, codec_, dtype_, tables_[step], prescale_, flight.memory);
  } else {
    device.kernels().pack(workspace_.encoding, dtype_, tables_[step], 1.0, flight.memory);
  }
  flight.processed = device.record(workspace_.encoding);
  workspace_.stopwatch.add(&HostTimes::encode, begin, flight.processed);
  device.wait(workspace_.to_host, flight.processed);
  flight.begin = device.record(workspace_.to_host);
  device.copy(workspace_.to_host, to, flight.memory, bytes(step));
  flight.copied = device.record(workspace_.to_host);
  workspace_.stopwatch.add(&HostTimes::copy_to_host, flight.begin, flight.copied);
}

void HostLanes::await_sent(uint32_t step) { workspace_.await(sending(step).copied); }

void HostLanes::begin_receiving(uint32_t step) {
  Device& device = workspace_.device;
  Flight& flight = receiving(step);
  if (flight.processed) device.wait(workspace_.from_host, flight.processed);
  flight.begin = device.record(workspace_.from_host);
}

void HostLanes::receive(uint32_t step, size_t offset, const std::byte* from, size_t bytes) {
  if (bytes != 0) workspace_.device.copy(workspace_.from_host, receiving(step).memory + offset, from, bytes);
}

void HostLanes::end_receiving(uint32_t step) {
  Device& device = workspace_.device;
  Flight& flight = receiving(step);
  flight.copied = device.record(workspace_.from_host);
  workspace_.stopwatch.add(&HostTimes::copy_back, flight.begin, flight.copied);
  device.wait(workspace_.decoding, flight.copied);
  const Event begin = device.record(workspace_.decoding);
  if (is_encoded_) {
    device.kernels().decode(workspace_.decoding, codec_, dtype_, tables_[step], flight.memory);
  } else {
    device.kernels().unpack(workspace_.decoding, dtype_, tables_[step], 1.0, 1.0, flight.memory);
  }
  flight.processed = device.record(workspace_.decoding);
  workspace_.stopwatch.add(&HostTimes::decode, begin, flight.processed);
}

void HostLanes::await_received(uint32_t step) { workspace_.await(receiving(step).copied); }

void HostLanes::finish() {
  Device& device = workspace_.device;
  device.wait(workspace_.stream, device.record(workspace_.encoding));
  device.wait(workspace_.stream, device.record(workspace_.decoding));
  workspace_.stopwatch.add(&HostTimes::whole, begin_, device.record(workspace_.stream));
}

}  // namespace hvd
