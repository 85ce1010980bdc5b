// The facts that ranks compare before they work together, and the arguments of GPU kernels.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "bind/testing/testing.h"
#include "collective/device/gpu_backend.h"
#include "device/device_kernels.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

std::string of_settings(const std::vector<Settings*>& ranks) {
  std::vector<std::string> texts;
  for (const Settings* settings : ranks) texts.push_back(settings->of_job());
  return disagreement_of_settings(texts);
}

std::tuple<bool, std::string, std::string> of_gpus(const std::vector<DevicePeer>& peers) {
  if (peers.empty()) throw InvalidArgument(Said::no_ranks);
  const DeviceAgreement agreement = agree_on_transport(peers);
  return {agreement.has_nccl, agreement.why, agreement.error.text()};
}

}  // namespace

void register_agreement(nb::module_& m) {
  using namespace nb::literals;
  m.def("disagreement_of_settings", of_settings, "ranks"_a);
  m.def("disagreement_of_builds", disagreement_of_builds, "texts"_a);
  nb::class_<DevicePeer>(m, "DevicePeer")
      .def(nb::init<>())
      .def_rw("rank", &DevicePeer::rank)
      .def_rw("gpu", &DevicePeer::gpu)
      .def_rw("nccl_version", &DevicePeer::nccl_version)
      .def_rw("why_no_nccl", &DevicePeer::why_no_nccl)
      .def_rw("transport", &DevicePeer::transport)
      .def_rw("out_of_reach", &DevicePeer::out_of_reach);
  m.def("agree_on_gpu_transport", of_gpus, "peers"_a);
  m.def(
      "device_codec",
      [](const std::string& name) {
        const DeviceCodec codec = device_codec_named(name);
        return std::make_tuple(static_cast<int>(codec.coding), codec.is_stochastic, codec.block, codec.seed);
      },
      "name"_a);
}

}  // namespace hvd::testing
