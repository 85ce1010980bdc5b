// The coordinator of one process set, on rank 0: takes the ranks' announcements and decides on responses. No threads, clock or
// transport.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "observe/listener.h"
#include "observe/stall_inspector.h"
#include "schedule/agreement.h"
#include "schedule/fusion.h"
#include "schedule/missing_gradients.h"
#include "schedule/request.h"
#include "schedule/response_cache.h"

namespace hvd {

class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using PassQuery = MissingGradients::PassQuery;

  // `ranks`: the members, numbered in the job; a position is an index into them. `label` precedes names shown to listeners.
  // `in_order`: see EngineContext.
  Coordinator(std::vector<int> ranks, std::string label, int64_t cache_capacity, FusionRules rules, bool in_order,
              std::vector<Listener*> listeners);

  // Returns the ids that it has forgotten; the rank must announce these requests again in full.
  std::vector<uint32_t> on_announcement(size_t position, const Announcement& announcement, TimePoint now);
  void tune(const std::string& lines) { rules_.tune(lines); }  // see Settings::tune
  // Responses on what has become ready since the last call, in the order in which every rank must carry them out.
  std::vector<Response> decide();
  // The ranks that have not requested an operation that the rank at `position` has requested. Empty if that rank has not.
  std::vector<int> missing(size_t position, const std::string& name);
  // Answers kNotYet for the undecided gradients of a question. False if the question is unknown.
  bool release(const std::string& question) { return missing_.release(question); }
  // A caller waits for `name`. If that is a question, pass_queries() has the ranks to ask whether they are in a backward pass,
  // and on_no_pass() takes their answers.
  void note_waiting(const std::string& name) { missing_.note_waiting(name); }
  std::vector<PassQuery> pass_queries();
  void on_no_pass(size_t position, const std::string& question) { missing_.on_no_pass(position, question); }
  // Operations that some ranks have requested and others have not.
  std::vector<StalledOperation> incomplete(TimePoint now) const;

 private:
  struct Pending {
    std::vector<std::optional<Request>> requests;  // by position
    std::vector<uint32_t> ids;                     // by position: the announced id, 0 = in full
    std::vector<std::optional<uint32_t>> passes;   // by position: the backward pass of the request
    size_t count = 0;                              // of requests
    TimePoint since;
    bool is_join = false;
    bool is_told = false;  // on_agreed() was called
  };
  struct Ready {
    Item item;
    Request request;
  };

  [[noreturn]] void refuse(size_t position, const std::string& what) const;
  void on_request(size_t position, const Request& request, uint32_t id, TimePoint now);
  void on_missing(size_t position, const Request& request, TimePoint now);
  MissingGradients::Ranks ranks_for_missing() const;
  void note_passes(const std::string& name, const Pending& complete);
  void on_join(size_t position);
  void note_order(size_t position, const Announcement& announcement);
  void note_begun(size_t position, const Announcement& announcement);
  void refuse_out_of_order(std::vector<Response>* responses);
  void answer_begun(std::vector<Response>* responses);
  void answer_complete(std::vector<Response>* responses);
  void answer_missing(std::vector<Response>* responses);
  void tell_agreed(const std::string& name, Pending* pending) const;
  void complete_without_absent();
  bool is_missing(const Pending& pending, size_t position) const;
  bool is_complete(const Pending& pending) const;
  std::optional<Response> refuse_or_accept(const std::string& name, std::vector<Ready>* ready,
                                           std::vector<uint32_t>* forgotten);
  Failure refusal(const std::vector<RankRequest>& requests) const;

  // Constant after construction.
  const std::vector<int> ranks_;
  const std::string label_;
  const std::vector<Listener*> listeners_;

  FusionRules rules_;  // kTune changes them at its response, as on the ranks
  ResponseCache cache_;
  std::optional<OrderCheck> order_;
  MissingGradients missing_;
  std::vector<uint32_t> passes_;  // by position: the latest backward pass
  // By name of an anchor: by position, the pass in which the rank requested it last.
  std::unordered_map<std::string, std::vector<std::optional<uint32_t>>> anchors_;
  BegunBatches begun_;
  Failure broken_;  // the reason to end the job, if ranks have begun different operations
  std::unordered_map<std::string, Pending> pending_;
  std::vector<std::string> complete_;  // names that all ranks have requested, in the order of completion
  std::vector<uint32_t> owed_;         // by position: requests announced by forgotten ids, and not yet in full
  std::vector<bool> has_joined_;       // by position
  size_t joined_count_ = 0;
  int last_joined_ = 0;
  bool is_over_ = false;     // kShutdown was sent; later announcements have no effect
  std::optional<int> left_;  // the rank that shuts down, until kShutdown is sent
};

}  // namespace hvd
