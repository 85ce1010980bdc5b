#include "collective/route.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "base/error.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {
namespace {

std::tuple<std::string, bool, std::string> choose(const RouteFacts& facts, const std::string& algorithm, bool is_deterministic,
                                                  const LinkCosts& costs) {
  const RouteRules rules{algorithm_named(algorithm), is_deterministic, costs};
  const RouteChoice choice = choose_route(facts, rules);
  return {std::string(name_of(choice.route)), choice.is_encoded, explain(facts, rules, choice)};
}

}  // namespace

void register_route(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<LinkCosts>(m, "LinkCosts")
      .def(nb::init<>())
      .def_rw("memory_latency", &LinkCosts::memory_latency)
      .def_rw("memory_byte", &LinkCosts::memory_byte)
      .def_rw("network_latency", &LinkCosts::network_latency)
      .def_rw("network_byte", &LinkCosts::network_byte)
      .def("__repr__", [](const LinkCosts& costs) { return to_text(costs); });
  nb::class_<RouteFacts>(m, "RouteFacts")
      .def(nb::init<>())
      .def_rw("ranks", &RouteFacts::ranks)
      .def_rw("hosts", &RouteFacts::hosts)
      .def_rw("most_on_a_host", &RouteFacts::most_on_a_host)
      .def_rw("carriers", &RouteFacts::carriers)
      .def_rw("shares_memory", &RouteFacts::shares_memory)
      .def_rw("has_host_windows", &RouteFacts::has_host_windows)
      .def_rw("is_encoded", &RouteFacts::is_encoded)
      .def_rw("bytes", &RouteFacts::bytes)
      .def_rw("wire_bytes", &RouteFacts::wire_bytes);
  m.def("choose_route", choose, "facts"_a, "algorithm"_a = "auto", "deterministic"_a = false, "costs"_a = LinkCosts());
}

}  // namespace hvd
