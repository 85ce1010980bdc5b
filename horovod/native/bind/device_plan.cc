#include "collective/device/device_plan.h"

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

Plan planned(const DevicePlanFacts& facts, const std::string& algorithm, bool is_deterministic) {
  DevicePlanFacts all = facts;
  all.nccl_serves = nccl_reduces(facts.dtype, facts.op);
  return plan_device_allreduce(all, {algorithm_named(algorithm), is_deterministic, {}});
}

void set_dtype(DevicePlanFacts& facts, int number) {
  if (number < 0 || number >= kDTypeCount) throw InvalidArgument("there is no dtype number " + std::to_string(number));
  facts.dtype = static_cast<DType>(number);
}

void set_op(DevicePlanFacts& facts, int number) {
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

void register_device_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<DevicePlanFacts, PlanFacts>(m, "DevicePlanFacts")
      .def(nb::init<>())
      .def_rw("has_nccl", &DevicePlanFacts::has_nccl)
      .def_rw("why_no_nccl", &DevicePlanFacts::why_no_nccl)
      .def_prop_rw(
          "dtype", [](const DevicePlanFacts& facts) { return static_cast<int>(facts.dtype); }, set_dtype)
      .def_prop_rw("op", [](const DevicePlanFacts& facts) { return static_cast<int>(facts.op); }, set_op);
  m.def("plan_device_allreduce", planned, "facts"_a, "algorithm"_a = "auto", "deterministic"_a = false);
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
