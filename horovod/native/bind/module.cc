// The module, and the bindings of errors and settings.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/settings.h"
#include "base/simd.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {
namespace {

// A text may quote bytes that are not UTF-8, such as a variable's value.
nb::object python_text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

nb::dict python_facts(const Facts& facts) {
  nb::dict all;
  for (const Fact& fact : facts.others) {
    const nb::object text = python_text(fact.value);
    all[fact.name.c_str()] = fact.is_number ? nb::steal(PyLong_FromUnicodeObject(text.ptr(), 10)) : text;
  }
  if (!facts.tensor.empty()) all["tensor"] = python_text(facts.tensor);
  if (!facts.ranks.empty()) all["ranks"] = nb::cast(facts.ranks);
  nb::dict values;
  for (size_t i = 0; i < std::min(facts.ranks.size(), facts.values.size()); ++i) {
    values[nb::cast(facts.ranks[i])] = python_text(facts.values[i]);
  }
  if (!facts.values.empty()) all["values"] = values;
  return all;
}

void raise(const Failure& failure) {
  const nb::object type = nb::module_::import_("horovod.common.exceptions").attr(name_of(failure.kind));
  const nb::object error =
      type(python_text(failure.text()), nb::arg("code") = code_of(failure.said), nb::arg("facts") = python_facts(failure.facts),
           nb::arg("remedy") = python_text(failure.remedy()));
  PyErr_SetObject(type.ptr(), error.ptr());
}

}  // namespace

void register_settings(nb::module_& m) {
  nb::class_<Settings> settings(m, "Settings");
  settings.def(nb::init<>()).def_static("from_environment", &Settings::from_environment);
#define HVD_BIND(variable, member, type, default_value, reader, is_of_job, is_tuned) \
  settings.def_rw(#member, &Settings::member);
  HVD_FOR_EACH_SETTING(HVD_BIND)
#undef HVD_BIND
  settings.def_rw("stall_shutdown_asked_by", &Settings::stall_shutdown_asked_by)
      .def_prop_ro("asks_for_mpi", asks_for_mpi)
      .def_prop_ro("asks_for_connections", asks_for_connections)
      .def("do_without_mpi", do_without_mpi);
  m.def("build_digest", [] { return std::string(build_digest()); });
  m.def("simd_level", [] { return std::string(name_of(resolve_simd_level(Settings::from_environment().simd))); });
  m.def("simd_levels", [] {
    std::vector<std::string> names;
    for (const SimdLevel level : available_simd_levels()) names.emplace_back(name_of(level));
    return names;
  });
}

// Translates the errors of base/error.h to Python exceptions.
void register_errors() {
  nb::register_exception_translator(
      [](const std::exception_ptr& raised, void*) {
        try {
          std::rethrow_exception(raised);
        } catch (const Error& error) {
          raise(error.failure());
        }
      },
      nullptr);
}

}  // namespace hvd

NB_MODULE(_native, m) {
  // The traceback of an uncaught exception keeps objects alive. nanobind would report them as leaks.
  nanobind::set_leak_warnings(false);
  m.doc() = "The core of horovod: codecs, collectives and the engine. See docs/architecture.md.";
  m.def("version", [] { return HOROVOD_VERSION; });
  hvd::register_errors();
  hvd::register_settings(m);
  hvd::register_codec(m);
  hvd::register_plan(m);
  hvd::register_device(m);
  hvd::register_feedback(m);
  hvd::register_world(m);
  hvd::register_tcp(m);
  hvd::register_engine(m);
  hvd::register_device_kernels(m);
}
