#include "base/settings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/simd.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {

void register_settings(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Settings> settings(m, "Settings");
  settings.def(nb::init<>()).def_static("from_environment", &Settings::from_environment);
#define HVD_BIND(variable, member, type, default_value, reader, is_of_job) settings.def_rw(#member, &Settings::member);
  HVD_FOR_EACH_SETTING(HVD_BIND)
#undef HVD_BIND
  settings.def_rw("stall_shutdown_asked_by", &Settings::stall_shutdown_asked_by);
  m.def(
      "disagreement_of_settings",
      [](const std::vector<Settings*>& ranks) {
        std::vector<std::string> texts;
        for (const Settings* settings : ranks) texts.push_back(settings->of_job());
        return disagreement_of_settings(texts);
      },
      "ranks"_a);
  m.def("build_digest", [] { return std::string(build_digest()); });
  m.def("disagreement_of_builds", disagreement_of_builds, "texts"_a);
  m.def("simd_level", [] { return std::string(name_of(resolve_simd_level(Settings::from_environment().simd))); });
  m.def("simd_levels", [] {
    std::vector<std::string> names;
    for (const SimdLevel level : available_simd_levels()) names.emplace_back(name_of(level));
    return names;
  });
}

}  // namespace hvd
