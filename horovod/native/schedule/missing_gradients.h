// Rank 0's account of backward passes that have ended without some gradients, which other ranks may have.
//
// A rank whose pass lacks gradients asks what becomes of each, by the name under which it would be reduced. The answer is
// `kStart` as soon as some rank has started that operation; when every rank asks about it too, or has joined, `kStart` if some
// rank has a part of it, as of a group, else `kNobodyHasIt`; `kNotYet` if the asking rank must go on first, as others wait for
// it elsewhere (see deadlocks.h). An answer is the same for all that ask. It is sent when all names of a question have one, or
// some are to be started: others wait for these. Then the asking rank asks again about the rest.
//
// A question may be about optimizers that the pass has not reached. Another rank may have no such optimizer, and never ask. So
// the question has an *anchor*, an operation of its pass. It tells which pass of another rank is the same: that in which the
// rank has asked for the anchor. Operations and questions of later passes do not count, and if the rank has asked for something
// in a later pass, or says that it is in none, the answer is `kNotYet`. No threads, no clock, no transport.
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
  using Pass = uint32_t;  // of one rank: how many it had begun
  // Rank 0's other knowledge of the ranks.
  struct Ranks {
    std::function<bool(size_t position)> has_joined;
    // By position, the pass in which the rank has asked for the operation. Null if none has, or all have.
    std::function<const std::vector<std::optional<Pass>>*(const std::string& name)> started;
    std::function<Pass(size_t position)> latest_pass;  // in which it has asked for something
  };

  struct Answer {
    std::string question;
    std::vector<int64_t> decisions;  // a MissingGradient of each name, in the order of the question
  };

  explicit MissingGradients(size_t ranks) : questions_(ranks) {}

  struct PassQuery {
    size_t position = 0;  // of the rank that is to be asked whether it is in a pass
    std::string question;
  };

  bool is_empty() const { return is_empty_; }
  struct Subject {
    std::string name;
    bool has_part = false;   // the asking rank has some gradients of it, but not all
    bool is_last = false;    // all ranks ask about it; when it is decided, no rank has the other undecided subjects
    bool is_anchor = false;  // an operation that the rank has asked for, or another subject: it is not asked about itself
  };
  // `question` is a name that no other question has while it is open.
  // The rank has begun that `pass` last. `passed`: by position, in which pass the rank has asked for the anchor, if all have.
  void ask(size_t position, std::string question, std::vector<Subject> about, Pass pass,
           std::vector<std::optional<Pass>> passed, TimePoint now);
  // Questions that can be answered now. They are forgotten.
  std::vector<Answer> answer(const Ranks& ranks);
  // The caller has waited for a while. So others may never ask.
  void note_waiting(const std::string& question);
  // About ranks that have passed the anchor of a question that is waited for, and have not asked. Each is returned once.
  std::vector<PassQuery> pass_queries(const Ranks& ranks);
  // The rank is in no pass, and has announced all that it had started before.
  void on_no_pass(size_t position, const std::string& question);
  // For which ranks the rank's question waits; nothing if there is no such question.
  std::optional<std::vector<size_t>> waits_for(const std::string& question, const Ranks& ranks);
  // By name of what is asked about, since when it is undecided.
  std::map<std::string, TimePoint> undecided() const;
  // Ranks that have neither asked about it, nor joined.
  std::vector<size_t> silent_about(const std::string& name, const Ranks& ranks) const;
  // Answers what is undecided with kNotYet, at the next answer(). False if there is no such question.
  bool release(const std::string& question);
  // Whether a rank takes part in this operation only because others have started it. Asked once: then it is forgotten.
  bool take_completed(const std::string& name) { return completed_.erase(name) != 0; }

 private:
  struct Question {
    size_t position = 0;
    Pass pass = 0;
    std::string name;
    std::vector<Subject> about;
    std::unordered_multimap<std::string, size_t> places;  // by name, in `about`
    TimePoint since;
    std::string anchor;                       // "" if it has none
    std::vector<std::optional<Pass>> passed;  // by position: the same pass, as far as known
    bool is_waited_for = false;
    std::vector<bool> is_queried, is_in_none;  // by position: it is to say when it is in no pass; it has said so
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
  static void settle(Question* one, MissingGradient rest);  // what is undecided is this

  std::vector<std::vector<Question>> questions_;  // by position; a rank has as many as process sets, at most
  bool is_empty_ = true;
  std::unordered_set<std::string> completed_;
};

// What a question is about as one text, as it travels.
std::string to_text(const std::vector<MissingGradients::Subject>& about);
std::vector<MissingGradients::Subject> subjects_of(const std::string& text);

}  // namespace hvd
