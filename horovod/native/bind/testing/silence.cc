#include <nanobind/stl/map.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <vector>

#include "bind/testing/testing.h"
#include "observe/stall_inspector.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

SilenceReport inspect(SilenceInspector& inspector, double now, const std::map<int, uint64_t>& signs, uint64_t moved) {
  std::vector<SignOfLife> awaited;
  for (const auto& [rank, sign] : signs) awaited.push_back({rank, sign});
  return inspector.inspect(at(now * 1000), awaited, moved);
}

}  // namespace

// Times are in seconds.
void register_silence_inspector(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<SilenceReport>(m, "SilenceReport")
      .def_ro("silent", &SilenceReport::silent)
      .def_prop_ro("longest", [](const SilenceReport& report) { return report.longest.count(); })
      .def_ro("is_due", &SilenceReport::is_due)
      .def_ro("must_end", &SilenceReport::must_end);
  nb::class_<SilenceInspector>(m, "SilenceInspector")
      .def(
          "__init__",
          [](SilenceInspector* self, double warn_after, double end_after) {
            new (self) SilenceInspector({true, StallLimits::Seconds(warn_after), StallLimits::Seconds(end_after)});
          },
          "warn_after"_a, "end_after"_a = 0.0)
      .def(
          "is_due", [](const SilenceInspector& self, double now) { return self.is_due(at(now * 1000)); }, "now"_a)
      .def("inspect", inspect, "now"_a, "signs"_a, "moved"_a = 0);
}

}  // namespace hvd::testing
