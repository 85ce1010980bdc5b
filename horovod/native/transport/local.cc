#include "transport/local.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>

#include "base/futex.h"
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
    for (std::byte* segment : region.segments) prepare_window(segment);
    for (const int rank : host) add_host_window(*transports[static_cast<size_t>(rank)], region.segments, region.memory);
  }
}

// The transport of a world of one.
class SelfTransport final : public Transport {
 public:
  const char* name() const override { return "self"; }
  const Topology& topology() const override { return topology_; }
  void post(int, std::span<const std::byte> message) override { mail_.push_back({0, {message.begin(), message.end()}}); }

  std::optional<Message> receive() override { return take_first(mail_); }
  void flush() override {}

  void wait(std::chrono::microseconds timeout, bool) override {
    if (mail_.empty()) heard_ = wait_for_change(doorbell_, heard_, timeout);
  }

  void wake() override { advance(doorbell_); }
  void abandon(int) override {}

  // A transfer to oneself is complete at once.
  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const std::shared_ptr<void>&) override {
    for (size_t i = 0; i < outgoing.size(); ++i) {
      if (outgoing[i].bytes != 0) std::memcpy(incoming[i].data, outgoing[i].data, outgoing[i].bytes);
    }
    return 0;
  }

  void progress() override {}
  void finish(Ticket) override {}
  void cancel() override {}
  uint64_t sign_of_life(int) override { return 0; }

 private:
  uint64_t transferred() override { return 0; }

  const Topology topology_{.hosts = {{0}}};
  FutexCounter doorbell_;
  // Engine thread only.
  std::deque<Message> mail_;
  uint32_t heard_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_self_transport() { return std::make_unique<SelfTransport>(); }

std::vector<std::unique_ptr<Transport>> make_local_transports(int size, bool with_windows, const std::vector<int>& host_of) {
  std::vector<std::vector<int>> hosts(1);
  for (int rank = 0; rank < size; ++rank) {
    const size_t host = host_of.empty() ? 0 : static_cast<size_t>(host_of[static_cast<size_t>(rank)]);
    if (host >= hosts.size()) hosts.resize(host + 1);
    hosts[host].push_back(rank);
  }
  const bool one_host = hosts.size() == 1;
  const Region region = make_region(static_cast<size_t>(size), shared_memory_bytes(size));
  for (std::byte* segment : region.segments) prepare_shared_memory(segment, size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(make_shared_memory_transport("local", topology_of(rank, hosts), region.segments, region.memory,
                                                      with_windows && one_host));
  }
  if (with_windows && !one_host && static_cast<int>(hosts.size()) < size) add_host_windows(hosts, transports);
  return transports;
}

}  // namespace hvd
