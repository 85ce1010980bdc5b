#include "schedule/execution.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bind/testing/rank.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

// An Execution whose calls to its engine are recorded. The test gives it the responses of rank 0.
struct BoundExecution {
  explicit BoundExecution(Rank& of)
      : rank(of),
        execution(of, {.on_failure = [this] { ++failures; },
                       .reason_heard = [this] { return heard.empty() ? Failure() : failure_of(heard); },
                       .on_set_added = [this] { ++sets_added; }}) {}
  Rank& rank;
  int failures = 0, sets_added = 0;
  std::string heard;  // the reason for which other ranks end the job
  Execution execution;
};

// Submits and announces it. Returns the handle.
int64_t ask(BoundExecution& self, Submission submission, int set) {
  Rank& rank = self.rank;
  const int64_t handle = rank.submissions.add(submitted_of(rank, set, std::move(submission)), at(0)).handle;
  for (Submitted& one : rank.submissions.take_all()) {
    std::vector<Submission> alone;
    alone.push_back(std::move(one.submission));
    one.set->announce(std::move(alone), false);
  }
  return handle;
}

void carry_out(BoundExecution& self, const Response& response) {
  self.execution.carry_out(response, *self.rank.sets.by_serial(response.set));
}

}  // namespace

void register_execution(nb::module_& m) {
  using namespace nb::literals;
  using Self = BoundExecution;
  nb::class_<Self>(m, "Execution")
      .def(nb::init<Rank&>(), "rank"_a, nb::keep_alive<1, 2>())
      .def("ask", ask, "submission"_a, "process_set"_a = 0)
      .def("carry_out", carry_out, "response"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "stop", [](Self& self, const std::string& why) { self.execution.stop(failure_of(why), false); }, "why"_a)
      .def_prop_ro("tuned", [](const Self& self) { return self.execution.tuned(); })
      .def_ro("failures", &Self::failures)
      .def_ro("sets_added", &Self::sets_added)
      .def_rw("heard", &Self::heard);
}

}  // namespace hvd::testing
