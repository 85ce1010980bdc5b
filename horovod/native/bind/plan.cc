#include "collective/plan.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>

#include "bind/bind.h"
#include "collective/allreduce_patterns.h"

namespace nb = nanobind;

namespace hvd {
namespace {

Plan planned(const PlanFacts& facts, const std::string& algorithm, bool is_deterministic, const LinkCosts& costs,
             const GpuCosts& gpu_costs) {
  return plan_allreduce(facts, {algorithms_named(algorithm), is_deterministic, {costs, gpu_costs}});
}

bool is_possible(const PlanFacts& facts, const std::string& algorithm) {
  return has_routes(facts, algorithms_named(algorithm));
}

PlanFacts places_in(const World& world) {
  Transport& transport = *world.opened.transport;
  std::vector<int> all(static_cast<size_t>(transport.size()));
  std::iota(all.begin(), all.end(), 0);
  return facts_of(RankGroup(transport, all), static_cast<int>(Settings().carriers));
}

void set_dtype(PlanFacts& facts, int number) { facts.dtype = dtype_numbered(number); }
void set_op(PlanFacts& facts, int number) { facts.op = reduce_op_numbered(number); }

std::vector<std::pair<std::string, double>> estimates_of(const Plan& plan) {
  std::vector<std::pair<std::string, double>> estimates;
  for (const Estimate& each : plan.estimates) estimates.emplace_back(name_of(each.route), each.seconds);
  return estimates;
}

std::map<std::string, std::string> meanings() {
  std::map<std::string, std::string> by_name;
  for (const AllreducePattern& pattern : allreduce_patterns()) by_name.emplace(name_of(pattern.route), pattern.meaning);
  return by_name;
}

}  // namespace

void register_plan(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<LinkCosts>(m, "LinkCosts")
      .def(nb::init<>())
      .def_rw("memory_latency", &LinkCosts::memory_latency)
      .def_rw("memory_byte", &LinkCosts::memory_byte)
      .def_rw("network_latency", &LinkCosts::network_latency)
      .def_rw("network_byte", &LinkCosts::network_byte)
      .def("__repr__", [](const LinkCosts& costs) { return to_text(costs); });
  nb::class_<GpuCosts>(m, "GpuCosts")
      .def(nb::init<>())
      .def_rw("kernel_byte", &GpuCosts::kernel_byte)
      .def_rw("local_latency", &GpuCosts::local_latency)
      .def_rw("local_byte", &GpuCosts::local_byte)
      .def_rw("network_latency", &GpuCosts::network_latency)
      .def_rw("network_byte", &GpuCosts::network_byte)
      .def("__repr__", [](const GpuCosts& costs) { return to_text(costs); });
  nb::class_<PlanFacts>(m, "PlanFacts")
      .def(nb::init<>())
      .def_static("of_world", places_in, "world"_a)
      .def("has_routes", is_possible, "algorithm"_a)
      .def_rw("ranks", &PlanFacts::ranks)
      .def_rw("hosts", &PlanFacts::hosts)
      .def_rw("most_on_a_host", &PlanFacts::most_on_a_host)
      .def_rw("carriers", &PlanFacts::carriers)
      .def_rw("shares_memory", &PlanFacts::shares_memory)
      .def_rw("has_host_windows", &PlanFacts::has_host_windows)
      .def_rw("is_encoded", &PlanFacts::is_encoded)
      .def_rw("sums_can_travel", &PlanFacts::sums_can_travel)
      .def_rw("bytes", &PlanFacts::bytes)
      .def_rw("wire_bytes", &PlanFacts::wire_bytes)
      .def_prop_rw(
          "dtype", [](const PlanFacts& facts) { return static_cast<int>(facts.dtype); }, set_dtype)
      .def_prop_rw(
          "op", [](const PlanFacts& facts) { return static_cast<int>(facts.op); }, set_op)
      .def_rw("on_gpu", &PlanFacts::on_gpu)
      .def_rw("has_nccl", &PlanFacts::has_nccl)
      .def_rw("why_no_nccl", &PlanFacts::why_no_nccl);
  nb::class_<Plan>(m, "Plan")
      .def_prop_ro("route", [](const Plan& plan) { return name_of(plan.route); })
      .def_prop_ro("pattern", [](const Plan& plan) { return std::string(plan.route.pattern.name); })
      .def_prop_ro("levels", [](const Plan& plan) { return std::string(name_of(plan.route.levels)); })
      .def_prop_ro("carrier", [](const Plan& plan) { return std::string(name_of(plan.route.carrier)); })
      .def_ro("is_encoded", &Plan::is_encoded)
      .def_prop_ro("estimates", estimates_of)
      .def_prop_ro("reason", explain)
      .def("__repr__", [](const Plan& plan) { return "<Plan: " + name_of(plan.route) + "; " + explain(plan) + ">"; });
  m.def("plan_allreduce", planned, "facts"_a, "algorithm"_a = "auto", "deterministic"_a = false, "costs"_a = LinkCosts(),
        "gpu_costs"_a = GpuCosts());
  m.def("allreduce_patterns", meanings);
  m.def("carriers_of", [](const std::vector<std::vector<int>>& hosts) { return carriers_of(hosts); }, "hosts"_a);
}

}  // namespace hvd
