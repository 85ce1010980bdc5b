// GPU tensors whose messages are in GPU memory: kernels write and read them. Calls only enqueue work. `left_out` and `done` are
// ignored: begin() already determines them, as this rank's bucket if there is no codec.
#pragma once

#include <vector>

#include "collective/device/device_workspace.h"
#include "collective/device/piece_tables.h"
#include "collective/tensor_memory.h"

namespace hvd {

class GpuTensors final : public TensorMemory {
 public:
  explicit GpuTensors(DeviceWorkspace& workspace) : workspace_(workspace) {}

  bool is_elsewhere() const override { return false; }
  ClaimedResiduals claim(Feedback& of, Stage stage, int64_t begin, int64_t count) override {
    return of.claim_on(workspace_.device(), workspace_.stream(), stage, begin, count, workspace_.progress_callback());
  }
  void open(Window&, int) override {}
  std::shared_ptr<std::byte[]> memory(size_t bytes) override {
    return {workspace_.scratch(bytes, allocated_++), [](std::byte*) {}};
  }

  void begin(std::span<const Steps> groups, int self) override;
  void send(uint32_t step, std::byte* messages, int left_out) override;
  void await_sent(uint32_t) override {}
  void reduce(uint32_t step, size_t group, size_t bucket, Messages contributions, bool to_destination,
              std::byte* result) override;
  void receive(uint32_t step, size_t group, int first, int last, const std::byte* messages, int done) override;
  void await_received(uint32_t) override {}
  int64_t saturated() const override { return 0; }  // kernels count saturated values

  void fill_send_buffers(uint32_t step, std::span<std::byte* const> groups) override;
  void begin_sends(int own, const BucketReduction& reduction) override;
  void sum(uint32_t step, size_t bucket, Messages data, std::byte* message) override;

 private:
  // The tables of a step: messages of each group; results of this rank's bucket; data sent inside the host; sums of each bucket
  // of the own group.
  struct StepTables {
    std::vector<size_t> messages;
    size_t results = 0, sends = 0;
    std::vector<size_t> sums;
  };

  // All steps' tables are uploaded at the first call, because the host may be far ahead of its GPU.
  const StepTables& tables(uint32_t step);
  StepTables made(uint32_t step);
  DeviceKernels& kernels() const { return workspace_.kernels(); }

  DeviceWorkspace& workspace_;
  size_t allocated_ = 0;
  std::span<const Steps> groups_;
  int self_ = 0;
  size_t own_ = 0;  // the group whose results this rank makes
  bool has_sends_ = false, has_sums_ = false;
  BucketReduction over_ranks_;
  PieceTables pieces_;
  std::vector<StepTables> steps_;
};

}  // namespace hvd
