// This rank's backward passes, and rank 0's queries about them (see missing_gradients.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/request.h"

namespace hvd {

class BackwardPasses {
 public:
  // Training threads. True if a pass has ended and rank 0 waits for that.
  bool note(bool is_in_pass) {
    if (is_in_pass && !is_in_pass_) ++begun_;
    is_in_pass_ = is_in_pass;
    return !is_in_pass && has_queries_;
  }
  uint32_t begun() const { return begun_; }

  // Engine's thread.
  void ask(uint32_t set, std::string question) {
    has_queries_ = true;
    queries_.emplace_back(set, std::move(question));
  }
  bool can_answer() const { return !queries_.empty() && !is_in_pass_; }
  // The answers to rank 0. The rank must announce all operations of its passes before it sends them.
  std::vector<Announcement> take_answers() {
    has_queries_ = false;
    std::vector<Announcement> answers;
    for (auto& [set, question] : std::exchange(queries_, {})) {
      Announcement& answer = answers.emplace_back();
      answer.set = set;
      answer.no_pass_at = std::move(question);
    }
    return answers;
  }

 private:
  std::atomic<bool> is_in_pass_{false}, has_queries_{false};
  std::atomic<uint32_t> begun_{0};
  std::vector<std::pair<uint32_t, std::string>> queries_;  // serial of the set, question
};

}  // namespace hvd
