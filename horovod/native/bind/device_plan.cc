#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind/bind.h"
#include "collective/device/gpu_backend.h"

namespace nb = nanobind;

namespace hvd {
namespace {

std::tuple<bool, std::string, std::string> agree(const std::vector<DevicePeer>& peers) {
  if (peers.empty()) throw InvalidArgument("no ranks: a process set has at least one");
  const DeviceAgreement agreement = agree_on_transport(peers);
  return {agreement.has_nccl, agreement.why, agreement.error};
}

}  // namespace

void register_device_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<DevicePeer>(m, "DevicePeer")
      .def(nb::init<>())
      .def_rw("rank", &DevicePeer::rank)
      .def_rw("gpu", &DevicePeer::gpu)
      .def_rw("nccl_version", &DevicePeer::nccl_version)
      .def_rw("why_no_nccl", &DevicePeer::why_no_nccl)
      .def_rw("transport", &DevicePeer::transport)
      .def_rw("out_of_reach", &DevicePeer::out_of_reach);
  m.def("agree_on_gpu_transport", agree, "peers"_a);
}

}  // namespace hvd
