#include "collective/device/nccl_level.h"

#include <algorithm>
#include <utility>

#include "collective/device/device_pieces.h"

namespace hvd {

// So many bytes of elements, and of all messages, as GPUs of a host exchange well.
int64_t NcclLevel::elements_per_bucket(const HostRole& role, const TensorMemory&, const BucketReduction& reduction,
                                       bool gather) const {
  constexpr int64_t kStepElementBytes = int64_t{16} << 20, kRun = Layout::kRun;
  const int64_t buckets = int64_t{role.carriers} * (gather ? 1 : role.hosts);
  const int64_t elements = kStepElementBytes / static_cast<int64_t>(size_of(reduction.dtype)) / buckets;
  const int64_t by_messages = elements_of(wire_.message_bytes(role.carriers * role.hosts), reduction);
  return std::max(kRun, std::min(elements / kRun * kRun, by_messages));
}

bool NcclLevel::begin(const HostSteps& steps) {
  steps_.emplace(steps);
  const HostRole& role = steps.role;
  receive_offsets_.resize(static_cast<size_t>(role.carriers));
  std::vector<size_t> receive_buffers(receive_offsets_.size());
  for (uint32_t step = 0; step < steps.count; ++step) {
    inputs_offset_ = std::max(inputs_offset_, steps.send_offset(step, role.carriers, role.local_rank));
    if (role.carries()) own_bytes_ = std::max(own_bytes_, steps.slice_bytes(step, role.local_rank));
    for (size_t carrier = 0; carrier < receive_buffers.size(); ++carrier) {
      receive_buffers[carrier] = std::max(receive_buffers[carrier], steps.receive_bytes(step, static_cast<int>(carrier)));
    }
  }
  inputs_offset_ = padded_for_gpu(inputs_offset_);
  own_bytes_ = padded_for_gpu(own_bytes_);
  slot_bytes_ = inputs_offset_ + role.locals.size() * own_bytes_;
  for (size_t carrier = 0; carrier < receive_buffers.size(); ++carrier) {
    receive_offsets_[carrier] = slot_bytes_;
    slot_bytes_ += padded_for_gpu(receive_buffers[carrier]);
  }
  memory_ = steps.memory.memory(std::min(steps.count, kSlots) * slot_bytes_);
  return true;
}

std::byte* NcclLevel::send_buffer(uint32_t step, int slice) {
  return slot(step) + steps_->send_offset(step, slice, steps_->role.local_rank);
}

void NcclLevel::sent(uint32_t step) {
  const HostRole& role = steps_->role;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int carrier = 0; carrier < role.carriers; ++carrier) {
    if (carrier == role.local_rank) continue;
    outgoing.push_back(
        {role.locals[static_cast<size_t>(carrier)], send_buffer(step, carrier), steps_->slice_bytes(step, carrier)});
  }
  for (size_t r = 0; role.carries() && r < role.locals.size(); ++r) {
    const int local = static_cast<int>(r);
    if (local == role.local_rank) continue;
    incoming.push_back({role.locals[r], send_buffer_of(local, step), steps_->slice_bytes(step, role.local_rank)});
  }
  sent_[step % kSlots] = wire_.start(outgoing, incoming, memory_);
}

void NcclLevel::await_sent(uint32_t step) { wire_.finish(*std::exchange(sent_[step % kSlots], std::nullopt)); }

std::byte* NcclLevel::send_buffer_of(int local_rank, uint32_t step) {
  return slot(step) + inputs_offset_ + static_cast<size_t>(local_rank) * own_bytes_;
}

std::byte* NcclLevel::receive_buffer(int carrier, uint32_t step) {
  return slot(step) + receive_offsets_[static_cast<size_t>(carrier)];
}

void NcclLevel::publish(uint32_t step) {
  const HostRole& role = steps_->role;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int carrier = 0; carrier < role.carriers; ++carrier) {
    const Steps& slice = steps_->slices[static_cast<size_t>(carrier)];
    for (int party = 0; party < slice.parties(); ++party) {
      std::byte* const message = receive_buffer(carrier, step) + slice.offset(step, party);
      const size_t bytes = slice.bytes(step, party);
      if (carrier != role.local_rank) {
        incoming.push_back({role.locals[static_cast<size_t>(carrier)], message, bytes});
        continue;
      }
      for (size_t r = 0; r < role.locals.size(); ++r) {
        if (static_cast<int>(r) != role.local_rank) outgoing.push_back({role.locals[r], message, bytes});
      }
    }
  }
  published_[step % kSlots] = wire_.start(outgoing, incoming, memory_);
}

void NcclLevel::await_published(uint32_t step, int) {
  if (auto& ticket = published_[step % kSlots]) wire_.finish(*std::exchange(ticket, std::nullopt));
}

}  // namespace hvd
