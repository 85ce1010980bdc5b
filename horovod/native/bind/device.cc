#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "device/device_library.h"

namespace nb = nanobind;

namespace hvd {
namespace {

// What this process sees of GPUs.
struct GpuFacts {
  int count = 0;
  std::string why_none;  // a sentence, if the count is 0
  std::vector<std::string> names, identities;
  int nccl_version = 0;
  std::string why_no_nccl;  // a sentence, if the version is 0
};

GpuFacts gpu_facts() {
  GpuFacts facts;
  try {
    DeviceLibrary& library = device_library();
    facts.nccl_version = library.nccl_version();
    if (facts.nccl_version == 0) facts.why_no_nccl = library.why_no_nccl();
    for (int i = 0; i < library.count(); ++i) {
      facts.names.push_back(library.at(i).name());
      facts.identities.push_back(library.at(i).identity());
    }
    facts.count = library.count();
    if (facts.count == 0) facts.why_none = "this process sees no GPU";
  } catch (const InvalidArgument& error) {
    facts.why_none = facts.why_no_nccl = error.what();
  }
  return facts;
}

}  // namespace

void register_device(nb::module_& m) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<GpuFacts>(m, "GpuFacts")
      .def_ro("count", &GpuFacts::count)
      .def_ro("why_none", &GpuFacts::why_none)
      .def_ro("names", &GpuFacts::names)
      .def_ro("identities", &GpuFacts::identities)
      .def_ro("nccl_version", &GpuFacts::nccl_version)
      .def_ro("why_no_nccl", &GpuFacts::why_no_nccl);
  m.def("gpu_facts", gpu_facts, released());
  m.def("nccl_version", [] { return device_library().nccl_version(); }, released());
  m.def("use_device_library", use_device_library, nb::arg("path"));
  m.def("device_library_is_installed", device_library_is_installed);
}

}  // namespace hvd
