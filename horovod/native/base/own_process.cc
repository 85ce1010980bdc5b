#include "base/own_process.h"

#include <pthread.h>

#include <atomic>

#include "base/error.h"

namespace hvd {
namespace {

std::atomic<int> forks{0};

// Throws where children could not be told from their parent.
void count_forks() {
  static const int failure = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (failure != 0) throw StartupError("pthread_atfork failed: no memory");
}

}  // namespace

OwnProcess::OwnProcess() {
  count_forks();
  forks_ = forks.load(std::memory_order_relaxed);
}

bool OwnProcess::is_this() const { return forks.load(std::memory_order_relaxed) == forks_; }

}  // namespace hvd
