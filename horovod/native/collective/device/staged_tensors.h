// GPU tensors whose messages go through pinned host memory: the GPU encodes, decodes and copies them. Ranks encode their
// contributions before any sum, so a host sums codes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/device/host_workspace.h"
#include "collective/tensor_memory.h"

namespace hvd {

class HostLanes;

// For an allreduce whose residuals of contributions were claimed on the GPU (BucketTensor::sent).
class StagedTensors final : public TensorMemory {
 public:
  // `prescale` applies to encoded elements.
  StagedTensors(HostWorkspace& workspace, double prescale);
  ~StagedTensors() override;

  bool is_elsewhere() const override { return true; }
  // Residuals of the sums that this CPU makes.
  ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) override {
    return claim_on_cpu(of, stage, begin, count);
  }
  void open(Window& window, int ranks) override { workspace_.pin(window, ranks); }
  std::shared_ptr<std::byte[]> memory(size_t bytes) override { return workspace_.pinned.take(bytes); }

  void begin(std::span<const Steps> groups, int self) override;
  void send(uint32_t step, std::byte* messages, int left_out) override;
  void await_sent(uint32_t step) override;
  void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
              std::byte* result) override;
  void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) override;
  void await_received(uint32_t step) override;
  int64_t saturated() const override;

  size_t send_offset(const Steps& group, uint32_t step, size_t bucket) const override;
  int64_t elements_in_send_buffer(int64_t bytes, const BucketReduction& reduction) const override;
  void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) override;
  void begin_sends(int own, const BucketReduction& reduction) override;
  void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) override;

  // The stream waits for the last decoding, and the losses of the host's sums are added to their carrier's residuals.
  void finish();

 private:
  struct Lost {
    float* residual;    // in GPU memory
    const float* here;  // in host memory: what the sum lost of the same elements
    int64_t count;
  };
  void give_residuals_back();

  HostWorkspace& workspace_;
  const double prescale_;
  std::span<const Steps> groups_;
  std::vector<BucketsOf> buckets_;  // for the sums of this CPU
  std::unique_ptr<HostLanes> lanes_;
  std::optional<Steps> summed_;  // the group that this rank sums over its host
  std::optional<BucketsOf> sums_;
  DeviceMemory lost_memory_;
  std::vector<Lost> lost_;
};

}  // namespace hvd
