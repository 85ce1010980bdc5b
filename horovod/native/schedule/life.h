// The life of an engine. It advances from stage to stage, and never goes back. Thread-safe.
#pragma once

#include <atomic>

namespace hvd {

class Life {
 public:
  enum Stage {
    kOpen,
    kLeaving,      // this rank's script shuts down
    kToldLeaving,  // and rank 0 knows
    kEnded,        // in order
    kFailing,      // nothing more can be carried out, and callers are told
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
