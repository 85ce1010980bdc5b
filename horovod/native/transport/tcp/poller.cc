#include "transport/tcp/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hvd {
namespace {

constexpr int kMostEvents = 64;
constexpr std::chrono::milliseconds kCoarse{20};  // epoll_wait counts in milliseconds, which is good enough beyond these

Socket owned(int descriptor, const char* what) {
  if (descriptor < 0) throw InternalError(std::string(what) + ": " + std::strerror(errno));
  return Socket(descriptor);
}

}  // namespace

Poller::Poller()
    : epoll_(owned(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      doorbell_(owned(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, doorbell_.descriptor(), &event);
}

void Poller::watch(int descriptor, void* owner) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = owner;
  if (epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
    throw InternalError(std::string("epoll_ctl: ") + std::strerror(errno));
  }
}

void Poller::forget(int descriptor) { epoll_ctl(epoll_.descriptor(), EPOLL_CTL_DEL, descriptor, nullptr); }

const std::vector<Poller::Event>& Poller::wait(std::chrono::microseconds timeout) {
  events_.clear();
  int milliseconds = 0;
  if (timeout >= kCoarse) {
    milliseconds = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  } else if (timeout.count() > 0) {
    pollfd one{epoll_.descriptor(), POLLIN, 0};
    const timespec limit{0, static_cast<long>(timeout.count()) * 1000};
    if (ppoll(&one, 1, &limit, nullptr) <= 0) return events_;
  }
  epoll_event happened[kMostEvents];
  const int count = epoll_wait(epoll_.descriptor(), happened, kMostEvents, milliseconds);
  for (int i = 0; i < count; ++i) {
    const uint32_t what = happened[i].events;
    if (happened[i].data.ptr == nullptr) {
      was_seen_ = true;
      continue;
    }
    const bool is_broken = (what & (EPOLLERR | EPOLLHUP)) != 0, has_closed = is_broken || (what & EPOLLRDHUP) != 0;
    events_.push_back(
        {happened[i].data.ptr, has_closed || (what & EPOLLIN) != 0, is_broken || (what & EPOLLOUT) != 0, has_closed});
  }
  return events_;
}

void Poller::wake() {
  if (is_rung_.exchange(true)) return;
  const uint64_t one = 1;
  // Only a full counter refuses, and that wakes just as well.
  [[maybe_unused]] const ssize_t written = write(doorbell_.descriptor(), &one, sizeof one);
}

void Poller::hear_wake() {
  if (!is_rung_ && !was_seen_) return;
  was_seen_ = false;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(doorbell_.descriptor(), &count, sizeof count);  // it may be on its way still
  is_rung_ = false;  // last: who rings before this is heard already, as its caller has not looked yet
}

}  // namespace hvd
