// A mutex whose use the compiler checks: clang's -Wthread-safety reads the annotations, other compilers ignore them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HVD_ANNOTATE(x) __attribute__((x))
#else
#define HVD_ANNOTATE(x)
#endif

#define GUARDED_BY(mutex) HVD_ANNOTATE(guarded_by(mutex))
#define REQUIRES(mutex) HVD_ANNOTATE(requires_capability(mutex))
#define EXCLUDES(mutex) HVD_ANNOTATE(locks_excluded(mutex))

namespace hvd {

class HVD_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() HVD_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void unlock() HVD_ANNOTATE(release_capability()) { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class HVD_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HVD_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() HVD_ANNOTATE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex. The caller holds the mutex before and after every wait.
class Condition {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.native(), std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.native(), std::adopt_lock);
    condition_.wait_until(lock, deadline);
    lock.release();
  }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace hvd
