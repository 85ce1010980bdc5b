// A mutex whose use the compiler checks: clang's -Wthread-safety reads the annotations, other compilers ignore them.
#pragma once

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

}  // namespace hvd
