#include "device/device.h"

#include <thread>

namespace hvd {

void await(Device& device, const Event& event, const ProgressCallback& attend) {
  constexpr int kEagerLooks = 100;
  constexpr std::chrono::microseconds kBetweenLooks{20};
  for (int looks = 0; !device.is_done(event); ++looks) {
    attend();
    if (looks < kEagerLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
}

bool await_for_a_while(Device& device, std::initializer_list<Stream> streams, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const Stream stream : streams) {
    const Event end = device.record(stream);
    while (!device.is_done(end)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return true;
}

}  // namespace hvd
