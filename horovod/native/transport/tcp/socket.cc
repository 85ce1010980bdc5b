#include "transport/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace hvd {
namespace {

constexpr int kWaitingToBeAccepted = 1024;
constexpr size_t kMostSpans = 16;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Parses numeric addresses only, without name lookups.
Addresses parsed(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

std::string system_error() { return std::strerror(errno); }

void set_option(int descriptor, int level, int name, int value) { setsockopt(descriptor, level, name, &value, sizeof value); }

Moved moved(ssize_t bytes, std::span<const Span> spans) {
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {.is_blocked = errno != EINTR};
    return {.error = system_error()};
  }
  size_t wanted = 0;
  for (const Span& span : spans) wanted += span.bytes;
  // With epoll, a shorter transfer than requested means blocked; the poller reports when more is possible: see epoll(7).
  return {.bytes = static_cast<size_t>(bytes), .is_blocked = static_cast<size_t>(bytes) < wanted};
}

msghdr message_of(std::span<const Span> spans, iovec* vectors) {
  size_t count = 0;
  for (const Span& span : spans.first(std::min(spans.size(), kMostSpans))) vectors[count++] = {span.data, span.bytes};
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  return message;
}

constexpr int kMostEvents = 64;
constexpr std::chrono::milliseconds kCoarse{20};  // from here on epoll_wait's milliseconds are exact enough

Socket owned(int descriptor, const char* what) {
  if (descriptor < 0)
    throw InternalError(Said::system_call_failed, {.others = {{"call", what}, {"why", std::strerror(errno)}}});
  return Socket(descriptor);
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket listen_at(const std::string& address, PortRange ports) {
  std::string why;
  for (int port = ports.first; port <= ports.last; ++port) {
    const Addresses found = parsed(address, std::to_string(port));
    if (!found) throw StartupError(Said::no_address, {.others = {{"address", address}}});
    Socket listener(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int descriptor = listener.descriptor();
    if (found->ai_family == AF_INET6 && listener) set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (listener && ports.first != 0) set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    if (listener && bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 && listen(descriptor, kWaitingToBeAccepted) == 0) {
      return listener;
    }
    why = system_error();
  }
  const bool is_any = ports.last == 0;
  const std::string which = is_any ? "" : " on any port of " + std::to_string(ports.first) + "-" + std::to_string(ports.last);
  throw StartupError(Said::cannot_listen, {.others = {{"address", address}, {"ports", which}, {"why", why}}});
}

std::string endpoint_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length);
  getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  const bool is_version_6 = address.ss_family == AF_INET6;
  return (is_version_6 ? "[" + std::string(host) + "]" : host) + ":" + port;
}

Socket dial(const std::string& endpoint, std::string* why) {
  const size_t colon = std::min(endpoint.rfind(':'), endpoint.size());
  std::string host = endpoint.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const Addresses found = parsed(host, colon < endpoint.size() ? endpoint.substr(colon + 1) : "");
  if (!found) {
    *why = "it is no address and port";
    return {};
  }
  Socket connection(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool began =
      connection && (connect(connection.descriptor(), found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS);
  if (began) return connection;
  if (errno == EMFILE || errno == ENFILE) {  // a later attempt would fail too
    throw InternalError(Said::no_more_sockets, {.others = {{"endpoint", endpoint}, {"why", system_error()}}});
  }
  *why = system_error();
  return {};
}

std::string outcome_of(const Socket& dialled) {
  int code = 0;
  socklen_t length = sizeof code;
  getsockopt(dialled.descriptor(), SOL_SOCKET, SO_ERROR, &code, &length);
  if (code != 0) return std::strerror(code);
  sockaddr_storage peer{};
  length = sizeof peer;
  const bool is_there = getpeername(dialled.descriptor(), reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  return is_there ? "" : system_error();
}

Socket accept_next(const Socket& listener, std::string* why) {
  for (;;) {
    const int descriptor = accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) return Socket(descriptor);
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) *why = system_error();
    return {};
  }
}

void make_ready(const Socket& connection, double limit_seconds) {
  const int descriptor = connection.descriptor();
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  if (limit_seconds <= 0) return;
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min(limit_seconds, 1e6) * 1e3));
}

Moved send_some(const Socket& socket, std::span<const Span> spans) {
  iovec vectors[kMostSpans];
  const msghdr message = message_of(spans, vectors);
  return moved(sendmsg(socket.descriptor(), &message, MSG_NOSIGNAL), spans);
}

Moved receive_some(const Socket& socket, std::span<const Span> spans) {
  iovec vectors[kMostSpans];
  msghdr message = message_of(spans, vectors);
  const ssize_t bytes = recvmsg(socket.descriptor(), &message, 0);
  if (bytes == 0) return {.is_over = true};
  return moved(bytes, spans);
}

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
    throw InternalError(Said::system_call_failed, {.others = {{"call", "epoll_ctl"}, {"why", std::strerror(errno)}}});
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
  // The write fails only if the counter is full, and then the poller is woken too.
  [[maybe_unused]] const ssize_t written = write(doorbell_.descriptor(), &one, sizeof one);
}

void Poller::clear_wake() {
  if (!is_rung_ && !was_seen_) return;
  was_seen_ = false;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(doorbell_.descriptor(), &count, sizeof count);  // may fail: the write may be late
  is_rung_ = false;  // last: the caller looks after this, so it does not miss an earlier wake()
}

}  // namespace hvd
