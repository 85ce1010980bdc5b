#include "collective/feedback.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {
namespace {

using Values = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Stage stage_named(const std::string& name) {
  if (name == "sent") return Stage::kSent;
  if (name == "result") return Stage::kResult;
  throw InvalidArgument("there is no stage '" + name + "' of error feedback; choose 'sent' or 'result'");
}

// A copy: what the engine works on is not for others to hold.
std::pair<int64_t, nb::object> read(const Feedback& feedback, const std::string& stage) {
  const Feedback::Residual& held = feedback.at(stage_named(stage));
  auto copy = std::make_unique<std::vector<float>>(held.values);
  const size_t shape[] = {copy->size()};
  float* values = copy->data();
  nb::capsule owner(copy.release(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return {held.begin, nb::cast(nb::ndarray<nb::array_api, float, nb::ndim<1>, nb::device::cpu>(values, 1, shape, owner))};
}

void restore(Feedback& feedback, const std::string& stage, int64_t begin, const Values& values) {
  feedback.restore(stage_named(stage), {begin, {values.data(), values.data() + values.size()}});
}

}  // namespace

void register_feedback(nb::module_& m) {
  using namespace nb::literals;
  m.attr("RESIDUAL_BOUND") = nb::make_tuple(ResidualBound::kMost, ResidualBound::kRise, ResidualBound::kDecay);
  nb::class_<Feedback>(m, "Feedback")
      .def(nb::new_([](int64_t count) { return std::make_shared<Feedback>(count); }), "count"_a)
      .def_prop_ro("count", &Feedback::count)
      .def_prop_ro("nbytes", &Feedback::bytes)
      .def_rw("uses", &Feedback::uses)
      .def_prop_rw("usual", &Feedback::usual, &Feedback::set_usual)
      .def("read", read, "stage"_a, nb::sig("def read(self, stage: str) -> tuple[int, typing.Any]"))
      .def("restore", restore, "stage"_a, "begin"_a, "values"_a,
           nb::sig("def restore(self, stage: str, begin: int, values: typing.Any) -> None"))
      .def("scale", &Feedback::scale, "factor"_a)
      .def("clear", &Feedback::clear);
}

}  // namespace hvd
