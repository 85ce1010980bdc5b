// GPUs of a host: what they send each other, and what has arrived, goes from one to the other by messages. Each step under way has a
// slot:
//
//   slot := own send buffer, of the other carriers' slices; those of [locals], of the own slice; receive_buffer[carriers]
#pragma once

#include <optional>
#include <vector>

#include "collective/host_level.h"
#include "collective/wire.h"

namespace hvd {

class NcclLevel final : public HostLevel {
 public:
  explicit NcclLevel(Wire& wire) : wire_(wire) {}

  int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                              bool gather) const override;
  bool begin(const HostSteps& steps) override;
  void end() override {}

  void await_room(uint32_t) override {}
  std::byte* send_buffer(uint32_t step, int slice) override;
  void sent(uint32_t step) override;
  void await_sent(uint32_t step) override;
  std::byte* send_buffer_of(int local_rank, uint32_t step) override;
  void taken() override {}
  void await_receive_buffer(uint32_t) override {}
  std::byte* receive_buffer(int carrier, uint32_t step) override;
  void publish(uint32_t step) override;
  void await_published(uint32_t step, int carrier) override;
  void collected() override {}

 private:
  // More than the last stage lags behind the first: what comes into a slot again comes after all of its last step.
  static constexpr uint32_t kSlots = 6;

  std::byte* slot(uint32_t step) const { return memory_.get() + step % kSlots * slot_bytes_; }

  Wire& wire_;
  std::optional<HostSteps> steps_;
  std::shared_ptr<std::byte[]> memory_;
  size_t inputs_offset_ = 0, own_bytes_ = 0;  // what arrives of the own slice, and of one rank
  std::vector<size_t> receive_offsets_;       // by carrier
  size_t slot_bytes_ = 0;
  std::optional<Ticket> sent_[kSlots], published_[kSlots];
};

}  // namespace hvd
