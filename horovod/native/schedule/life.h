// The stage of an engine, which only advances. Thread-safe.
#pragma once

#include <atomic>

namespace hvd {

class Life {
 public:
  enum Stage {
    kOpen,
    kLeaving,      // this rank's script has called shutdown()
    kToldLeaving,  // this rank has announced that to rank 0
    kEnded,        // without a failure
    kFailing,      // no more operations can be carried out; handles fail
    kFailed,
  };

  void advance(Stage to) {
    Stage from = stage_;
    while (from < to && !stage_.compare_exchange_weak(from, to)) {
    }
  }
  bool is(Stage stage) const { return stage_ == stage; }
  bool has_failed() const { return stage_ >= kFailing; }
  bool is_over() const { return is(kEnded) || is(kFailed); }

 private:
  std::atomic<Stage> stage_{kOpen};
};

}  // namespace hvd
