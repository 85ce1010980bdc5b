#include "codec/codec.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "bind/bind.h"
#include "codec/kernels.h"
#include "collective/feedback.h"

namespace nb = nanobind;

namespace hvd {
namespace {

DType float_dtype(int number) {
  const auto dtype = numbered<DType>(number, Said::codec_takes_floats);
  if (!is_float(dtype)) throw InvalidArgument(Said::codec_takes_floats, {.others = {{"value", number}}});
  return dtype;
}

// Options that a caller leaves out are the format's defaults.
std::shared_ptr<const Codec> get_codec(const std::string& name, int64_t block_size, const std::string& variant,
                                       const std::string& rounding, const std::string& rotation, const std::string& levels,
                                       uint64_t seed, const std::string& level) {
  const std::string wanted = level.empty() ? Settings::from_environment().simd : level;
  return make_codec(name, {block_size, variant, rounding, rotation, levels, seed}, resolve_simd_level(wanted));
}

std::shared_ptr<const Codec> get_codec_named(const std::string& name, const std::string& level) {
  const std::string wanted = level.empty() ? Settings::from_environment().simd : level;
  return codec_named(name, resolve_simd_level(wanted));
}

int64_t encode(const Codec& codec, uintptr_t source, int dtype, int64_t count, uintptr_t destination, double prescale,
               uint64_t key, int64_t first) {
  const DType type = float_dtype(dtype);
  require_not_negative("count", count);
  require_not_negative("first", first);
  auto* run = reinterpret_cast<uint8_t*>(destination);
  const auto factor = static_cast<float>(prescale);
  const Draw draw = {key, first};
  if (type == DType::kFloat32) return codec.encode(reinterpret_cast<const float*>(source), count, factor, draw, run);
  std::vector<float> floats(static_cast<size_t>(count));
  codec_kernels(codec.level()).convert->to_float(type, reinterpret_cast<const void*>(source), count, floats.data());
  return codec.encode(floats.data(), count, factor, draw, run);
}

void decode(const Codec& codec, uintptr_t source, int64_t count, uintptr_t destination, int dtype) {
  const DType type = float_dtype(dtype);
  require_not_negative("count", count);
  const auto* run = reinterpret_cast<const uint8_t*>(source);
  if (type == DType::kFloat32) return codec.decode(run, count, reinterpret_cast<float*>(destination));
  std::vector<float> floats(static_cast<size_t>(count));
  codec.decode(run, count, floats.data());
  codec_kernels(codec.level()).convert->from_float(type, floats.data(), count, reinterpret_cast<void*>(destination));
}

void decode_add(const Codec& codec, uintptr_t source, int64_t count, uintptr_t accumulator) {
  require_not_negative("count", count);
  codec.decode_add(reinterpret_cast<const uint8_t*>(source), count, reinterpret_cast<float*>(accumulator));
}

void decode_two(const Codec& codec, uintptr_t first, uintptr_t second, int64_t count, float factor, uintptr_t destination) {
  require_not_negative("count", count);
  const TwoRuns runs = {reinterpret_cast<const uint8_t*>(first), reinterpret_cast<const uint8_t*>(second)};
  codec.decode_two(runs, count, factor, reinterpret_cast<float*>(destination));
}

using Values = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Stage stage_named(const std::string& name) {
  if (name == "sent") return Stage::kSent;
  if (name == "result") return Stage::kResult;
  throw InvalidArgument(Said::stage_unknown, {.others = {{"value", name}}});
}

// Returns a copy, since the engine changes the residuals.
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

void register_codec(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Codec>(m, "Codec")
      .def_prop_ro("name", &Codec::name)
      .def_prop_ro("block_size", &Codec::block)
      .def_prop_ro("is_stochastic", &Codec::is_stochastic)
      .def_prop_ro("level", [](const Codec& codec) { return std::string(name_of(codec.level())); })
      .def(
          "encoded_bytes",
          [](const Codec& codec, int64_t count) {
            require_not_negative("count", count);
            return codec.encoded_bytes(count);
          },
          "count"_a)
      .def("encode", encode, "source"_a, "dtype"_a, "count"_a, "destination"_a, "prescale"_a = 1.0, "key"_a = 0, "first"_a = 0,
           released())
      .def("decode", decode, "source"_a, "count"_a, "destination"_a, "dtype"_a, released())
      .def("decode_add", decode_add, "source"_a, "count"_a, "accumulator"_a, released())
      .def("decode_two", decode_two, "first"_a, "second"_a, "count"_a, "factor"_a, "destination"_a, released());
  nb::class_<FormatRow>(m, "CodecFormat")
      .def_prop_ro("format", [](const FormatRow& row) { return std::string(row.format); })
      .def_prop_ro("variant", [](const FormatRow& row) { return std::string(row.variant); })
      .def_prop_ro("bits", [](const FormatRow& row) { return row.bits; })
      .def_prop_ro("scale_bytes", [](const FormatRow& row) { return row.scale_bytes; })
      .def_prop_ro("is_rotated", [](const FormatRow& row) { return row.rotated; })
      .def_prop_ro("has_lloyd_levels", [](const FormatRow& row) { return row.lloyd; });
  m.def("codec_formats", [] { return std::vector<FormatRow>(format_rows().begin(), format_rows().end()); });
  m.def("get_codec", get_codec, "name"_a, "block_size"_a = 0, nb::kw_only(), "variant"_a = "", "rounding"_a = "nearest",
        "rotation"_a = "none", "levels"_a = "uniform", "seed"_a = 0, "level"_a = "");
  m.def("codec_named", get_codec_named, "name"_a, nb::kw_only(), "level"_a = "");
}

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
