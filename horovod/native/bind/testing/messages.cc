// Serialized messages between ranks, and the hashes of frames.
#include "base/hashes.h"
#include "bind/testing/testing.h"
#include "collective/device/gpu_backend.h"
#include "schedule/request.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

constexpr int kSender = 1;

// Parses the message and serializes the result.
template <typename T>
nb::bytes rewritten(const nb::bytes& message) {
  const std::vector<std::byte> bytes = to_bytes(read_message<T>(bytes_of(message), kSender));
  return nb::bytes(bytes.data(), bytes.size());
}

nb::bytes to_python(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

}  // namespace

void register_messages(nb::module_& m) {
  using namespace nb::literals;
  m.def("rewritten_announcements", rewritten<std::vector<Announcement>>, "message"_a);
  m.def("rewritten_responses", rewritten<std::vector<Response>>, "message"_a);
  m.def("rewritten_device_peer", rewritten<DevicePeer>, "message"_a);
  m.def("sha256", [](const nb::bytes& data) { return to_python(sha256({bytes_of(data)})); }, "data"_a);
  m.def(
      "hmac_sha256",
      [](const nb::bytes& key, const nb::bytes& data) { return to_python(hmac_sha256(bytes_of(key), {bytes_of(data)})); },
      "key"_a, "data"_a);
  m.def("crc32c", [](const nb::bytes& data) { return crc32c(bytes_of(data)); }, "data"_a);
  m.def("crc32c_by_table", [](const nb::bytes& data) { return crc32c_by_table(bytes_of(data)); }, "data"_a);
}

}  // namespace hvd::testing
