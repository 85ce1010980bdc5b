#include "schedule/submissions.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/testing/rank.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

// The submissions of a rank, which owns their process sets.
struct BoundSubmissions {
  Rank& rank;
  Submissions& submissions;
};

std::vector<OfSet> to_python(std::vector<Submitted> taken) {
  std::vector<OfSet> all;
  for (Submitted& one : taken) all.emplace_back(one.set->id(), std::move(one.submission));
  return all;
}

std::pair<int64_t, bool> add(BoundSubmissions& self, Submission submission, int set, double now) {
  const Submissions::Added added = self.submissions.add(submitted_of(self.rank, set, std::move(submission)), at(now));
  return {added.handle, added.must_wake};
}

std::optional<double> due(const BoundSubmissions& self) {
  const std::optional<TimePoint> due = self.submissions.due();
  if (!due) return std::nullopt;
  return std::chrono::duration<double, std::milli>(due->time_since_epoch()).count();
}

void release_names(BoundSubmissions& self, const std::vector<Submission>& done, int set) {
  std::vector<Agreed> agreed;
  for (const Submission& one : done) agreed.push_back({one, {}});
  self.submissions.release_names(*self.rank.sets.find(set), agreed);
}

}  // namespace

void register_submissions(nb::module_& m) {
  using namespace nb::literals;
  using Self = BoundSubmissions;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Self>(m, "Submissions")
      .def(nb::new_([](Rank& rank) { return Self{rank, rank.submissions}; }), "rank"_a, nb::keep_alive<0, 1>())
      .def("add", add, "submission"_a, "process_set"_a = 0, "now"_a = 0.0, released())
      .def("hold", [](Self& self) { self.submissions.hold(); })
      .def("let_go", [](Self& self) { return self.submissions.let_go(); })
      .def("hurry", [](Self& self) { return self.submissions.hurry(); })
      .def(
          "note_blocked", [](Self& self, int64_t handle, bool may_yield) { self.submissions.note_blocked(handle, may_yield); },
          "handle"_a, "may_yield"_a)
      .def_prop_ro("is_empty", [](const Self& self) { return self.submissions.is_empty(); })
      .def_prop_ro("due", due)
      .def(
          "take_due",
          [](Self& self, double now, bool at_once) { return to_python(self.submissions.take_due(at(now), at_once)); }, "now"_a,
          "at_once"_a = false, released())
      .def(
          "take_of", [](Self& self, int set) { return self.submissions.take_of(self.rank.sets.find(set)); }, "process_set"_a)
      .def("take_all", [](Self& self) { return to_python(self.submissions.take_all()); })
      .def("note_answer", [](Self& self) { self.submissions.note_answer(); })
      .def("take_blocked", [](Self& self) { return self.submissions.take_blocked(); })
      .def("release_names", release_names, "done"_a, "process_set"_a = 0)
      .def(
          "close", [](Self& self, const std::string& why) { self.submissions.close(failure_of(why)); }, "why"_a)
      .def_prop_ro("are_closed", [](const Self& self) { return self.submissions.are_closed(); })
      .def("require_open", [](const Self& self) { self.submissions.require_open(); })
      .def("tune", [](Self& self, const Settings& settings) { self.submissions.tune(settings); }, "settings"_a);
}

}  // namespace hvd::testing
