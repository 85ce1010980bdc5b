#include "bind/testing/rank.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string_view>

namespace nb = nanobind;

namespace hvd::testing {
namespace {

// By ResponseKind.
constexpr std::array<std::string_view, 8> kKinds = {"run",    "refuse",  "decided",     "ask in full",
                                                    "forget", "release", "ask of pass", "shutdown"};

ResponseKind kind_named(const std::string& name) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] == name) return static_cast<ResponseKind>(i);
  }
  throw nb::value_error("there is no such kind of response");
}

Response make_response(const std::string& kind, const std::vector<std::string>& names, uint32_t set, const std::string& why,
                       const std::vector<int64_t>& rows) {
  Response response{set, kind_named(kind), {}, {}, why.empty() ? Failure() : failure_of(why)};
  for (const std::string& name : names) {
    Item& item = response.items.emplace_back();
    item.name = name;
    item.rows = rows;
  }
  return response;
}

std::vector<std::string> names_of(const Response& response) {
  std::vector<std::string> names;
  for (const Item& item : response.items) names.push_back(item.name);
  return names;
}

std::vector<uint32_t> ids_of(const Response& response) {
  std::vector<uint32_t> ids = response.ids;
  for (const Item& item : response.items) {
    if (item.id != 0) ids.push_back(item.id);
  }
  return ids;
}

// The names that a response takes from its process set, in the order of its items.
std::vector<std::string> take(Rank& rank, const Response& response) {
  std::vector<Agreed> together;
  rank.sets.by_serial(response.set)->take(response.items, &together);
  std::vector<std::string> names;
  for (const Agreed& agreed : together) names.push_back(agreed.submission.request.name);
  return names;
}

void bind_submission(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Submission>(m, "Submission")
      .def_static("allreduce", allreduce_submission, "name"_a, "tensors"_a, "reduction"_a)
      .def_static("allgather", allgather_submission, "name"_a, "tensors"_a)
      .def_static("barrier", barrier_submission, "name"_a)
      .def_static("missing", missing_submission, "name"_a, "gradients"_a, "has_part"_a, "ends"_a = false, "anchor"_a = "")
      .def_static("tune", tune_submission, "name"_a, "settings"_a)
      .def_static("add_process_set", add_process_set_submission, "ranks"_a)
      .def_static("remove_process_set", remove_process_set_submission, "process_set"_a)
      .def_prop_ro("name", [](const Submission& self) { return self.request.name; })
      .def_rw("handle", &Submission::handle)
      .def_ro("begins_batch", &Submission::begins_batch);
}

void bind_response(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Response>(m, "Response")
      .def(nb::new_(&make_response), "kind"_a, "names"_a = std::vector<std::string>(), "set_serial"_a = 0, "why"_a = "",
           "rows"_a = std::vector<int64_t>())
      .def_prop_ro("kind", [](const Response& self) { return std::string(kKinds[static_cast<size_t>(self.kind)]); })
      .def_prop_ro("set_serial", [](const Response& self) { return self.set; })
      .def_prop_ro("names", names_of)
      .def_prop_ro("ids", ids_of)
      .def_prop_ro("rows",
                   [](const Response& self) { return self.items.empty() ? std::vector<int64_t>() : self.items.front().rows; })
      .def_prop_ro("error",
                   [](const Response& self) { return std::string(self.error.is_any() ? code_of(self.error.said) : ""); });
}

}  // namespace

void register_rank(nb::module_& m) {
  using namespace nb::literals;
  bind_submission(m);
  bind_response(m);
  nb::class_<Rank>(m, "Rank")
      .def(nb::init<World&, const Settings&>(), "world"_a, "settings"_a, nb::keep_alive<1, 2>())
      .def(
          "add_process_set", [](Rank& self, std::vector<int> ranks) { return self.sets.add(std::move(ranks)); }, "ranks"_a)
      .def("take", take, "response"_a)
      .def(
          "note_pass", [](Rank& self, bool is_in_pass) { return self.passes.note(is_in_pass); }, "is_in_pass"_a)
      .def(
          "is_done", [](Rank& self, int64_t handle) { return self.handles.has_result(handle); }, "handle"_a)
      .def(
          "is_released",
          [](Rank& self, int64_t handle) {
            return self.handles.wait_for_result(handle, std::chrono::microseconds(0)) == HandleTable::Seen::kReleased;
          },
          "handle"_a)
      .def(
          "result", [](Rank& self, int64_t handle) { return self.handles.wait(handle, std::chrono::microseconds(0)); },
          "handle"_a);
}

}  // namespace hvd::testing
