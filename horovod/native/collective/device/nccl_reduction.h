// A reduction by kernels, whose messages GPUs exchange by NCCL, step by step:
//
//   deposit     (several hosts) elements of the other carriers' slices go to them, inside the host
//   contribute  a carrier sums its slice over its host, or takes its own tensors if it is alone there, and sends what it makes
//               of that to the other parties: to all of them, or each slice of it to its owner
//   reduce      (scatter) the owner sums the contributions and sends the result to all parties
//   deliver     (several hosts) carriers give what has arrived to the other ranks of their host
//   collect     everybody sums contributions, or decodes results, into the destinations
//
// Parties are all ranks, or of each host the rank that carries the slice. The order of sums, the slices, residuals and random
// numbers are those of the same route on the CPU, and so are the results. Kernels of one step run while another is on the
// wire. In memory, each step under way has a slot; all offsets below are from its start.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/device/device_pieces.h"
#include "collective/device/nccl_routes.h"
#include "collective/steps.h"

namespace hvd {

// Who takes part in which role.
struct NcclPlace {
  std::vector<int> locals;         // ranks that sum before anything crosses, in the order of summation: of this host, or itself
  int local_rank = 0;              // this rank among them
  int carriers = 1;                // the first so many of them have a slice each
  std::vector<int> parties;        // ranks that carry this rank's slice, in the order of summation; of other ranks: none
  int party = 0, party_count = 1;  // this rank's place among them
  bool carries() const { return local_rank < carriers; }
};

class NcclReduction {
 public:
  struct Options {
    bool gather = false;
    bool delivers_results = true;  // false: only the owner gets a result
    bool is_hierarchical = false;  // hosts sum before parties do, also those with one rank
    BucketReduction inside;        // of what the ranks of a host sum
    BucketReduction across;        // of what parties sum
  };

  // `slices`: by carrier.
  NcclReduction(const NcclContext& nccl, NcclPlace place, Options options, std::vector<Steps> slices);

  void run();

 private:
  using Work = void (NcclReduction::*)(size_t step);
  // Of a step.
  struct Plan {
    std::vector<size_t> message_bytes, landing;  // by carrier, and in that by party: messages that everybody collects
    size_t gather_stride = 0;                    // from one party's landing to the next's
    std::vector<size_t> element_bytes, deposit;  // by carrier: elements of its slice
    size_t deposits = 0;                         // what arrives of those, by local rank
    std::vector<size_t> sent;                    // by party: contributions to it, where those are not the landing
    size_t received = 0;                         // contributions of parties
    size_t end = 0;
    size_t deposit_table = 0, contribute_table = 0, reduce_table = 0, collect_table = 0;
  };

  bool is_encoded() const { return options_.across.codec != nullptr; }
  const Steps& own() const { return slices_[static_cast<size_t>(place_.local_rank)]; }
  size_t at(int carrier, int party) const { return static_cast<size_t>(carrier * place_.party_count + party); }
  size_t own_padded(const Plan& plan) const;
  std::byte* slot(size_t step) const { return slots_ + step % stages_ * slot_bytes_; }

  std::vector<Work> stages() const;
  Plan planned(uint32_t step) const;
  void place_landings(Plan& plan) const;
  void make_tables(uint32_t step, Plan& plan);
  void add_contribution(uint32_t step, const Plan& plan);
  DeviceReduction summing(const BucketReduction& reduction, const DeviceCodec& in,
                          std::span<const std::byte* const> messages) const;

  void deposit(size_t step);
  void contribute(size_t step);
  void make_contribution(size_t step);
  void reduce(size_t step);
  void deliver(size_t step);
  void collect(size_t step);
  void start(size_t step, std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming);
  void transfer(size_t step, std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming);
  void await(size_t step);

  // Constant after construction, but for the last.
  const NcclContext& nccl_;
  const NcclPlace place_;
  const Options options_;
  const std::vector<Steps> slices_;
  const DeviceCodec codec_;
  std::vector<Plan> plans_;  // by step
  PieceTables tables_;
  size_t stages_ = 0;  // and slots: one has its next step when everything of the last has been enqueued
  size_t slot_bytes_ = 0;
  std::byte* slots_ = nullptr;
  std::vector<Event> arrived_;  // by slot, what its latest stage has started
};

}  // namespace hvd
