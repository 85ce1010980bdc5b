// Messages of ranks as bytes, for tests: read, and written again as the readers have understood them.
#include <nanobind/nanobind.h>

#include <span>

#include "base/bytes.h"
#include "bind/bind.h"
#include "collective/device/gpu_backend.h"
#include "schedule/request.h"

namespace nb = nanobind;

namespace hvd {
namespace {

constexpr int kSender = 1;

template <auto kRead>
nb::bytes rewritten(const nb::bytes& message) {
  ByteWriter writer;
  const std::span<const std::byte> bytes =
      write(kRead({static_cast<const std::byte*>(message.data()), message.size()}, kSender), &writer);
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace

void register_messages(nb::module_& m) {
  using namespace nb::literals;
  m.def("rewritten_announcements", rewritten<read_announcements>, "message"_a);
  m.def("rewritten_responses", rewritten<read_responses>, "message"_a);
  m.def("rewritten_device_peer", rewritten<read_peer>, "message"_a);
}

}  // namespace hvd
