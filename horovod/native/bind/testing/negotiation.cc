#include "schedule/negotiation.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bind/testing/rank.h"

namespace nb = nanobind;

namespace hvd::testing {
namespace {

// A Negotiation over the process sets of a rank.
struct BoundNegotiation {
  explicit BoundNegotiation(Rank& of) : rank(of), negotiation(of.transport, of.sets, of.passes, of.observers) {}
  Rank& rank;
  Negotiation negotiation;
};

void announce(BoundNegotiation& self, double now, const std::vector<OfSet>& submissions, bool is_leaving) {
  std::vector<Submitted> submitted;
  for (const auto& [set, submission] : submissions) submitted.push_back(submitted_of(self.rank, set, submission));
  self.negotiation.announce(std::move(submitted), is_leaving, at(now));
}

std::vector<Response> take_responses(BoundNegotiation& self) {
  std::deque<Response>& heard = self.negotiation.responses();
  std::vector<Response> taken{std::make_move_iterator(heard.begin()), std::make_move_iterator(heard.end())};
  heard.clear();
  return taken;
}

std::string reason_to_end(const BoundNegotiation& self) {
  const Failure reason = self.negotiation.reason_to_end(false);
  return reason.is_any() ? code_of(reason.said) : "";
}

}  // namespace

void register_negotiation(nb::module_& m) {
  using namespace nb::literals;
  using Self = BoundNegotiation;
  nb::class_<Self>(m, "Negotiation")
      .def(nb::init<Rank&>(), "rank"_a, nb::keep_alive<1, 2>())
      .def("announce", announce, "now"_a, "submissions"_a, "is_leaving"_a = false)
      .def(
          "announce_leaving", [](Self& self, double now) { self.negotiation.announce_leaving(at(now)); }, "now"_a)
      .def(
          "receive", [](Self& self, double now) { return self.negotiation.receive(at(now)); }, "now"_a)
      .def(
          "receive_early", [](Self& self, double now) { self.negotiation.receive_early(at(now)); }, "now"_a)
      .def(
          "report_blocked",
          [](Self& self, double now, const std::map<int64_t, bool>& blocked) {
            self.negotiation.report_blocked(blocked, at(now));
          },
          "now"_a, "blocked"_a)
      .def(
          "answer_pass_queries", [](Self& self, double now) { return self.negotiation.answer_pass_queries(at(now)); }, "now"_a)
      .def("coordinate", [](Self& self) { return self.negotiation.coordinate(); })
      .def(
          "end_stalled", [](Self& self, double now) { return self.negotiation.end_stalled(at(now), self.rank.liveness); },
          "now"_a)
      .def("take_responses", take_responses)
      .def(
          "follow",
          [](Self& self, const Response& response) {
            return self.negotiation.follow(response, *self.rank.sets.by_serial(response.set));
          },
          "response"_a)
      .def_prop_ro("reason_to_end", reason_to_end);
}

}  // namespace hvd::testing
