// A process set as one rank sees it: who is in it, what this rank has asked for there, and on rank 0, which coordinates all
// sets, who has asked for what.
//
// Members without a remark belong to the engine's thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "observe/counters.h"
#include "schedule/context.h"
#include "schedule/coordinator.h"
#include "schedule/executor.h"

namespace hvd {

struct CarriedOut {
  std::vector<Agreed> together;
  Result result;
};

class ProcessSet {
 public:
  // `id` is what users know the set by, and may be used again when the set is gone; `serial` is not. `ranks` ascend.
  ProcessSet(const EngineContext& engine, int id, uint32_t serial, std::vector<int> ranks);

  int rank() const { return rank_; }  // this one's
  int id() const { return id_; }
  uint32_t serial() const { return serial_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool is_member() const { return executor_ != nullptr; }
  const Counters& counters() const { return counters_; }  // any thread
  // "process set 1 (ranks 0, 2)"
  std::string to_text() const;

  // The announcement of submissions, which are remembered until a response names them. `may_begin`: it says that they are
  // begun, if they can be; then runs_of() has the responses.
  Announcement announce(std::vector<Submission> submissions, bool may_begin);
  std::vector<Response> runs_of(const Announcement& begun) const;
  // Another one, of those that were announced by `ids`, which the coordinator has forgotten.
  Announcement announce_in_full(const std::vector<uint32_t>& ids);
  bool is_waiting() const { return !announced_.empty() || has_begun(); }
  // The operation of a handle that has been announced and not answered; null if there is none.
  const std::string* name_of(int64_t handle) const;
  int64_t handle_of(const std::string& name) const;  // 0 if there is none
  void add_announced(std::vector<std::string>* names) const;

  // The submissions that a response's items stand for; where this rank has joined, a stand-in for those it never made.
  // Throws InternalError if an item cannot be taken; then `taken` holds those before it.
  void take(const std::vector<Item>& items, std::vector<Agreed>* taken);
  // Those of the items that this rank has submitted.
  std::vector<Agreed> take_present(const std::vector<Item>& items);
  std::vector<Submission> take_all();
  void forget(const std::vector<uint32_t>& ids);

  // What this rank has carried out before all were known to ask for it, until a response says that they do.
  bool has_begun() const { return !begun_.empty(); }
  size_t begun_count() const { return begun_.size(); }
  void keep_begun(CarriedOut done) { begun_.push_back(std::move(done)); }
  CarriedOut take_begun(const std::vector<Item>& items);

  Executor& executor() { return *executor_; }  // of members
  // What this set has on the GPU: has its streams go on after a failure, and gives everything back at the end.
  void abort_gpu();
  void close_gpu();
  // From the next operation on, the same on all ranks: the engine's settings, as these lines have changed them.
  void tune(const std::string& lines);
  void count_refusals(size_t count) { counters_.refusals += static_cast<int64_t>(count); }
  // On rank 0; the Coordinator's.
  std::vector<uint32_t> on_announcement(int rank, const Announcement& announcement, Coordinator::TimePoint now);
  std::vector<Response> decide();
  Coordinator& coordinator() { return *coordinator_; }
  size_t position_of(int rank) const;  // in ranks()

 private:
  Agreed take(const Item& item);
  void check_rows(const Request& request, const std::vector<int64_t>& rows) const;

  // Constant after construction.
  const int rank_;
  const int id_;
  const uint32_t serial_;
  const std::vector<int> ranks_;
  const SimdLevel simd_;
  const bool in_order_;

  FusionRules fusion_;
  Counters counters_;
  CacheMirror mirror_;
  bool has_rounds_ = false;  // some operation here takes several requests, which come at other times on each rank
  std::unordered_map<std::string, Submission> announced_;
  std::deque<CarriedOut> begun_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::unique_ptr<Executor> executor_;        // on members
};

}  // namespace hvd
