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
template <auto kRead>
nb::bytes rewritten(const nb::bytes& message) {
  ByteWriter writer;
  const std::span<const std::byte> bytes = write(kRead(bytes_of(message), kSender), &writer);
  return nb::bytes(bytes.data(), bytes.size());
}

nb::bytes to_python(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

}  // namespace

void register_messages(nb::module_& m) {
  using namespace nb::literals;
  m.def("rewritten_announcements", rewritten<read_announcements>, "message"_a);
  m.def("rewritten_responses", rewritten<read_responses>, "message"_a);
  m.def("rewritten_device_peer", rewritten<read_peer>, "message"_a);
  m.def("sha256", [](const nb::bytes& data) { return to_python(sha256({bytes_of(data)})); }, "data"_a);
  m.def(
      "hmac_sha256",
      [](const nb::bytes& key, const nb::bytes& data) { return to_python(hmac_sha256(bytes_of(key), {bytes_of(data)})); },
      "key"_a, "data"_a);
  m.def("crc32c", [](const nb::bytes& data) { return crc32c(bytes_of(data)); }, "data"_a);
  m.def("crc32c_by_table", [](const nb::bytes& data) { return crc32c_by_table(bytes_of(data)); }, "data"_a);
}

}  // namespace hvd::testing
