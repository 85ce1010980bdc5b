#include "transport/local.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "transport/shared_memory.h"
#include "transport/window.h"

namespace hvd {
namespace {

struct Region {
  std::shared_ptr<void> memory;
  std::vector<std::byte*> segments;
};

Region make_region(size_t count, size_t bytes) {
  const size_t each = (bytes + 4095) / 4096 * 4096;
  void* memory = std::aligned_alloc(4096, each * count);
  if (memory == nullptr) throw std::bad_alloc();
  Region region{std::shared_ptr<void>(memory, std::free), {}};
  for (size_t i = 0; i < count; ++i) region.segments.push_back(static_cast<std::byte*>(memory) + each * i);
  return region;
}

void add_host_windows(const std::vector<std::vector<int>>& hosts, std::vector<std::unique_ptr<Transport>>& transports) {
  for (const std::vector<int>& host : hosts) {
    const Region region = make_region(host.size(), host_window_bytes());
    for (std::byte* segment : region.segments) SharedWindow::prepare(segment);
    for (const int rank : host) add_host_window(*transports[static_cast<size_t>(rank)], region.segments, region.memory);
  }
}

}  // namespace

void SelfTransport::post(int, std::span<const std::byte> message) { mail_.push_back({0, {message.begin(), message.end()}}); }

std::optional<Message> SelfTransport::receive() {
  if (mail_.empty()) return std::nullopt;
  Message message = std::move(mail_.front());
  mail_.pop_front();
  return message;
}

void SelfTransport::wait(std::chrono::microseconds timeout, bool) {
  if (mail_.empty()) heard_ = wait_for_change(doorbell_, heard_, timeout);
}

void SelfTransport::wake() { advance(doorbell_); }

// A transfer to oneself is complete at once.
Ticket SelfTransport::start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                            const std::shared_ptr<void>&) {
  for (size_t i = 0; i < outgoing.size(); ++i) {
    if (outgoing[i].bytes != 0) std::memcpy(incoming[i].data, outgoing[i].data, outgoing[i].bytes);
  }
  return 0;
}

std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_windows, const std::vector<int>& host_of) {
  std::vector<std::vector<int>> hosts(1);
  for (int rank = 0; rank < size; ++rank) {
    const size_t host = host_of.empty() ? 0 : static_cast<size_t>(host_of[static_cast<size_t>(rank)]);
    if (host >= hosts.size()) hosts.resize(host + 1);
    hosts[host].push_back(rank);
  }
  const bool one_host = hosts.size() == 1;
  const Region region = make_region(static_cast<size_t>(size), SharedMemoryTransport::segment_bytes(size));
  for (std::byte* segment : region.segments) SharedMemoryTransport::prepare(segment, size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<SharedMemoryTransport>("local", topology_of(rank, hosts), region.segments,
                                                                 region.memory, with_windows && one_host));
  }
  if (with_windows && !one_host && static_cast<int>(hosts.size()) < size) add_host_windows(hosts, transports);
  return transports;
}

}  // namespace hvd
