#include "collective/device/device_route.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind/bind.h"
#include "collective/device/device_agreement.h"
#include "collective/device/nccl_routes.h"

namespace nb = nanobind;

namespace hvd {
namespace {

std::tuple<std::string, bool, std::string> choose(const DeviceRouteFacts& facts, const std::string& algorithm,
                                                  bool is_deterministic) {
  DeviceRouteFacts all = facts;
  all.nccl_serves = nccl_reduces(facts.dtype, facts.op);
  const DeviceChoice choice = choose_device_route(all, {algorithm_named(algorithm), is_deterministic, {}});
  return {std::string(name_of(choice.route)), choice.is_encoded, choice.why};
}

void set_dtype(DeviceRouteFacts& facts, int number) {
  if (number < 0 || number >= kDTypeCount) throw InvalidArgument("there is no dtype number " + std::to_string(number));
  facts.dtype = static_cast<DType>(number);
}

void set_op(DeviceRouteFacts& facts, int number) {
  if (number < 0 || number > static_cast<int>(ReduceOp::kProduct)) {
    throw InvalidArgument("there is no reduce op number " + std::to_string(number));
  }
  facts.op = static_cast<ReduceOp>(number);
}

std::tuple<bool, std::string, std::string> agree(const std::vector<DevicePeer>& peers) {
  if (peers.empty()) throw InvalidArgument("no ranks: a process set has at least one");
  const DeviceAgreement agreement = agree_on_transport(peers);
  return {agreement.has_nccl, agreement.why, agreement.error};
}

}  // namespace

void register_device_route(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<DeviceRouteFacts>(m, "DeviceRouteFacts")
      .def(nb::init<>())
      .def_rw("ranks", &DeviceRouteFacts::ranks)
      .def_rw("hosts", &DeviceRouteFacts::hosts)
      .def_rw("most_on_a_host", &DeviceRouteFacts::most_on_a_host)
      .def_rw("has_nccl", &DeviceRouteFacts::has_nccl)
      .def_rw("why_no_nccl", &DeviceRouteFacts::why_no_nccl)
      .def_rw("is_encoded", &DeviceRouteFacts::is_encoded)
      .def_prop_rw(
          "dtype", [](const DeviceRouteFacts& facts) { return static_cast<int>(facts.dtype); }, set_dtype)
      .def_prop_rw(
          "op", [](const DeviceRouteFacts& facts) { return static_cast<int>(facts.op); }, set_op)
      .def_rw("wire_bytes", &DeviceRouteFacts::wire_bytes);
  m.def("choose_device_route", choose, "facts"_a, "algorithm"_a = "auto", "deterministic"_a = false);
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
