// Ranks of a host that share memory: nothing is sent inside of it. An area of the host's window has slots that steps use in turn:
//
//   area := send_buffer[kSendBuffers] receive_buffer[kReceiveBuffers]
#pragma once

#include <optional>

#include "collective/context.h"
#include "collective/host_level.h"

namespace hvd {

class WindowLevel final : public HostLevel {
 public:
  // Of a group with a host window.
  explicit WindowLevel(const CollectiveContext& context);

  int64_t elements_per_bucket(const HostRole& role, const TensorMemory& memory, const BucketReduction& reduction,
                              bool gather) const override;
  bool begin(const HostSteps& steps) override;
  void end() override { window_.steps += steps_->count; }

  void await_room(uint32_t step) override;
  std::byte* send_buffer(uint32_t step, int slice) override;
  void sent(uint32_t) override { window_.advance(kSent); }
  void await_sent(uint32_t step) override;
  std::byte* send_buffer_of(int local_rank, uint32_t step) override;
  void taken() override { window_.advance(kTaken); }
  void await_receive_buffer(uint32_t step) override;
  std::byte* receive_buffer(int carrier, uint32_t step) override;
  void publish(uint32_t step) override;
  void await_published(uint32_t step, int carrier) override;
  void collected() override { window_.advance(kCollected); }

 private:
  static constexpr int kSent = 0, kTaken = 1, kPublished = 2, kCollected = 3;  // counters of the window
  // Powers of two, so that slots go on in turn when the count of steps begins anew at 2^32.
  static constexpr uint32_t kSendBuffers = 4, kReceiveBuffers = 16;

  uint32_t target(uint32_t step) const { return base_ + step + 1; }  // a counter's value once the step is behind it
  void await(int count, int counter, uint32_t value);
  int locals() const { return static_cast<int>(steps_->role.locals.size()); }

  const CollectiveContext& context_;
  Window& window_;
  const size_t send_bytes_, receive_bytes_;  // of a slot
  const uint32_t base_;
  std::optional<HostSteps> steps_;
};

}  // namespace hvd
