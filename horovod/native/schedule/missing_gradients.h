// Rank 0's answers to ranks whose backward pass has ended without some gradients. No threads, clock or transport. The rank asks
// about each gradient by the name of its reduction, and all ranks that ask get the same answer:
//
//   kStart         some rank has started the operation; or all have asked or joined, and some has a part of it, as of a group
//   kNobodyHasIt   all ranks have asked or joined, and none has a part of it
//   kNotYet        the asking rank must go on first, since other ranks wait for it elsewhere (see deadlocks.h)
//   kAskAgain      undecided; the rank must ask again
//
// A question is answered when all its names are decided, or some are kStart: other ranks wait for these.
//
// A question may be about optimizers that the pass has not reached. A rank without such an optimizer never asks. So the
// question has an *anchor*, an operation of its pass. Another rank's pass is the same one if the rank requested the anchor in
// it. Operations and questions of later passes do not count. If the rank has requested an operation in a later pass, or reports
// that it is in no pass, the answer is `kNotYet`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hvd {

enum class MissingGradient : int64_t { kNotYet, kStart, kNobodyHasIt, kAskAgain };

class MissingGradients {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Pass = uint32_t;  // number of passes that the rank had begun
  struct Ranks {          // the coordinator's state
    std::function<bool(size_t position)> has_joined;
    // By position, the pass in which the rank requested the operation. Null if no rank has done so, or all have.
    std::function<const std::vector<std::optional<Pass>>*(const std::string& name)> started;
    std::function<Pass(size_t position)> latest_pass;  // the last pass in which the rank requested an operation
  };

  struct Answer {
    std::string question;
    std::vector<int64_t> decisions;  // a MissingGradient for each name, in the order of the question
  };

  explicit MissingGradients(size_t ranks) : questions_(ranks) {}

  struct PassQuery {
    size_t position = 0;  // of the rank to ask whether it is in a pass
    std::string question;
  };

  bool is_empty() const { return is_empty_; }
  struct Subject {
    std::string name;
    bool has_part = false;   // the asking rank has some of its gradients, but not all
    bool is_last = false;    // all ranks ask about it; once it is decided, no rank has the undecided subjects
    bool is_anchor = false;  // the anchor: an operation that the rank has requested, or the name of another subject
  };
  // `question` is unique among open questions. `pass`: the rank's latest. `passed`: by position, the pass in which the rank
  // requested the anchor, if all have.
  void ask(size_t position, std::string question, std::vector<Subject> about, Pass pass,
           std::vector<std::optional<Pass>> passed, TimePoint now);
  // Answers the questions that can be answered now, and forgets them.
  std::vector<Answer> answer(const Ranks& ranks);
  // The caller has waited for a while, so other ranks may never ask.
  void note_waiting(const std::string& question);
  // Queries to ranks that have requested the anchor of such a question, and have not asked. Each is returned once.
  std::vector<PassQuery> pass_queries(const Ranks& ranks);
  // The rank is in no pass, and has announced all operations that it had started before.
  void on_no_pass(size_t position, const std::string& question);
  // The ranks for which a question waits; nothing if the question is unknown.
  std::optional<std::vector<size_t>> waits_for(const std::string& question, const Ranks& ranks);
  // The undecided names, each with the time of its first question.
  std::map<std::string, TimePoint> undecided() const;
  // Ranks that have neither asked about the name nor joined.
  std::vector<size_t> silent_about(const std::string& name, const Ranks& ranks) const;
  // Decides the undecided names of a question with kNotYet. False if the question is unknown.
  bool release(const std::string& question);
  // Whether some rank takes part in this operation because of a kStart. Forgets it.
  bool take_completed(const std::string& name) { return completed_.erase(name) != 0; }

 private:
  struct Question {
    size_t position = 0;
    Pass pass = 0;
    std::string name;
    std::vector<Subject> about;
    std::unordered_multimap<std::string, size_t> places;  // indices into `about`, by name
    TimePoint since;
    std::string anchor;                       // "" if it has none
    std::vector<std::optional<Pass>> passed;  // by position: the same pass of that rank, if known
    bool is_waited_for = false;
    std::vector<bool> is_queried, is_in_none;  // by position: whether it was queried; whether it answered "in no pass"
    std::vector<std::optional<MissingGradient>> decisions;
  };
  std::optional<MissingGradient> found(const Question& one, const std::string& name, const Ranks& ranks) const;
  const Subject* asked(const Question& one, size_t position, const std::string& name) const;
  bool is_started(const Question& one, const std::string& name, const Ranks& ranks) const;
  bool counts_for(const Question& one, const Question& other) const;
  bool has_left(const Question& one, size_t position, const Ranks& ranks) const;
  bool waits_for(const Question& one, size_t position, const Ranks& ranks) const;
  void note_passed(Question* one, const Ranks& ranks) const;
  void look(Question* one, const Ranks& ranks);
  static bool take_answer(Question* one, std::vector<Answer>* answers);
  void decide(const Question& by, const std::string& name, MissingGradient decision);
  Question* find(const std::string& question);
  static void settle(Question* one, MissingGradient rest);  // decides all undecided names

  std::vector<std::vector<Question>> questions_;  // by position; a rank has at most as many as process sets
  bool is_empty_ = true;
  std::unordered_set<std::string> completed_;
};

// The subjects of a question as the text in a request, and back.
std::string to_text(const std::vector<MissingGradients::Subject>& about);
std::vector<MissingGradients::Subject> subjects_of(const std::string& text);

}  // namespace hvd
