// A process set on one rank: its ranks, this rank's announced submissions, the executor if this rank is a member, and the
// coordinator on rank 0.
//
// Engine thread only, except members with a remark.
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
  // Users know the set by `id`, which another set may have after its removal. `serial` is unique. `ranks` ascend.
  ProcessSet(const EngineContext& engine, int id, uint32_t serial, std::vector<int> ranks);

  int rank() const { return rank_; }  // of this process, in the job
  int id() const { return id_; }
  uint32_t serial() const { return serial_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool is_member() const { return executor_ != nullptr; }
  const Counters& counters() const { return counters_; }  // any thread
  // "process set 1 (ranks 0, 2)"
  std::string to_text() const;

  // The announcement of submissions, which are kept until a response names them. `may_begin`: begins them if possible; then
  // runs_of() has the responses to carry out.
  Announcement announce(std::vector<Submission> submissions, bool may_begin);
  std::vector<Response> runs_of(const Announcement& begun) const;
  // The full announcement of requests whose `ids` the coordinator has forgotten.
  Announcement announce_in_full(const std::vector<uint32_t>& ids);
  bool is_waiting() const { return !announced_.empty() || has_begun(); }
  // The announced and unanswered operation of a handle; null if there is none.
  const std::string* name_of(int64_t handle) const;
  int64_t handle_of(const std::string& name) const;  // 0 if there is none
  void add_announced(std::vector<std::string>* names) const;

  // The submissions of a response's items; after a join, stand-ins for missing ones. Throws InternalError if an item cannot be
  // taken; `taken` then has the submissions before it.
  void take(const std::vector<Item>& items, std::vector<Agreed>* taken);
  // Skips items that this rank has not submitted.
  std::vector<Agreed> take_present(const std::vector<Item>& items);
  std::vector<Submission> take_all();
  void forget(const std::vector<uint32_t>& ids);

  // Operations that this rank has begun, until rank 0's response comes.
  bool has_begun() const { return !begun_.empty(); }
  size_t begun_count() const { return begun_.size(); }
  void keep_begun(CarriedOut done) { begun_.push_back(std::move(done)); }
  CarriedOut take_begun(const std::vector<Item>& items);

  Executor* executor() { return executor_.get(); }  // null unless this rank is a member
  // Applies changed settings of the engine, between the same two operations on all ranks.
  void tune(const std::string& lines);
  void count_refusals(size_t count) { counters_.refusals += static_cast<int64_t>(count); }
  // On rank 0: see Coordinator.
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
  bool has_rounds_ = false;  // some operation takes several requests, which come at different times on each rank
  std::unordered_map<std::string, Submission> announced_;
  std::deque<CarriedOut> begun_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::unique_ptr<Executor> executor_;        // on members
};

}  // namespace hvd
