#include "transport/host_window.h"

#include "transport/shared_window.h"

namespace hvd {
namespace {

constexpr size_t kAreaBytes = size_t{8} << 20;

// A peer on another host may wait for what this rank has started to send: transfers must not stand still for longer.
constexpr std::chrono::microseconds kLongestSleep{50};

}  // namespace

size_t host_window_bytes() { return SharedWindow::segment_bytes(kAreaBytes); }

void add_host_window(Transport& transport, std::vector<std::byte*> segments, std::shared_ptr<void> keep_alive) {
  const Patience spin_then_sleep{40, std::chrono::microseconds(0)};
  WindowWait wait{spin_then_sleep, kLongestSleep, [&transport] { transport.progress(); }};
  const int rank = transport.topology().local_rank;
  transport.add_host_window(
      std::make_unique<SharedWindow>(rank, std::move(segments), kAreaBytes, std::move(wait), std::move(keep_alive)));
}

}  // namespace hvd
