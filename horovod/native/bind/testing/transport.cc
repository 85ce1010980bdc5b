// The transport of a world, without an engine.
#include "transport/transport.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "bind/testing/testing.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

// Memory as tests describe it: rank, address, bytes.
using Place = std::tuple<int, uintptr_t, size_t>;

Transport& of(World& world) { return *world.opened.transport; }

Ticket start(World& world, const std::vector<Place>& outgoing, const std::vector<Place>& incoming) {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (const auto& [to, address, bytes] : outgoing) out.push_back({to, reinterpret_cast<const void*>(address), bytes});
  for (const auto& [from, address, bytes] : incoming) in.push_back({from, reinterpret_cast<void*>(address), bytes});
  return of(world).start(out, in);
}

// Sends any bytes, which need not be a valid message.
void post(World& world, int to, const nb::bytes& message) {
  if (to < 0 || to >= of(world).size()) throw InvalidArgument(Said::rank_unknown, {.ranks = {to}});
  of(world).post(to, bytes_of(message));
}

nb::object to_python(const std::optional<Message>& message) {
  return message ? nb::object(nb::bytes(message->bytes.data(), message->bytes.size())) : nb::none();
}

nb::object next_message(World& world, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::optional<Message> message;
  {
    const nb::gil_scoped_release release;
    while (!(message = of(world).receive()) && std::chrono::steady_clock::now() < deadline) {
      of(world).wait(std::chrono::milliseconds(100), true);
    }
  }
  return to_python(message);
}

}  // namespace

void register_transport(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  m.def("post", post, "world"_a, "to"_a, "message"_a);
  m.def("receive", [](World& world) { return to_python(of(world).receive()); }, "world"_a);
  m.def("next_message", next_message, "world"_a, "seconds"_a);
  m.def("flush", [](World& world) { of(world).flush(); }, "world"_a, released());
  m.def(
      "wait",
      [](World& world, int64_t microseconds, bool eager) { of(world).wait(std::chrono::microseconds(microseconds), eager); },
      "world"_a, "microseconds"_a, "eager"_a = true, released());
  m.def("wake", [](World& world) { of(world).wake(); }, "world"_a, released());
  m.def("start", start, "world"_a, "outgoing"_a, "incoming"_a, released());
  m.def("finish", [](World& world, Ticket ticket) { of(world).finish(ticket); }, "world"_a, "ticket"_a, released());
  m.def("cancel", [](World& world) { of(world).cancel(); }, "world"_a);
}

}  // namespace hvd::testing
