// The module, with the core's errors and settings.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/error.h"
#include "base/settings.h"
#include "base/simd.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {
namespace {

// A text that it quotes, such as a variable's, may be of no encoding.
void raise(PyObject* type, const char* what) {
  if (PyObject* message = PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "backslashreplace")) {
    PyErr_SetObject(type, message);
    Py_DECREF(message);
  }
}

}  // namespace

void register_settings(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Settings> settings(m, "Settings");
  settings.def(nb::init<>()).def_static("from_environment", &Settings::from_environment);
#define HVD_BIND(variable, member, type, default_value, reader, is_of_job, is_tuned) \
  settings.def_rw(#member, &Settings::member);
  HVD_FOR_EACH_SETTING(HVD_BIND)
#undef HVD_BIND
  settings.def_rw("stall_shutdown_asked_by", &Settings::stall_shutdown_asked_by);
  m.def(
      "disagreement_of_settings",
      [](const std::vector<Settings*>& ranks) {
        std::vector<std::string> texts;
        for (const Settings* settings : ranks) texts.push_back(settings->of_job());
        return disagreement_of_settings(texts);
      },
      "ranks"_a);
  m.def("build_digest", [] { return std::string(build_digest()); });
  m.def("disagreement_of_builds", disagreement_of_builds, "texts"_a);
  m.def("simd_level", [] { return std::string(name_of(resolve_simd_level(Settings::from_environment().simd))); });
  m.def("simd_levels", [] {
    std::vector<std::string> names;
    for (const SimdLevel level : available_simd_levels()) names.emplace_back(name_of(level));
    return names;
  });
}

// The error tree of base/error.h as Python exceptions.
void register_errors(nb::module_& m) {
  nb::register_exception_translator(
      [](const std::exception_ptr& raised, void*) {
        try {
          std::rethrow_exception(raised);
        } catch (const InternalError& error) {
          const nb::object type = nb::module_::import_("horovod.common.exceptions").attr("HorovodInternalError");
          raise(type.ptr(), error.what());
        } catch (const Error& error) {
          raise(PyExc_ValueError, error.what());
        }
      },
      nullptr);
  static_cast<void>(m);
}

}  // namespace hvd

NB_MODULE(_native, m) {
  // A process that ends from an exception keeps objects in its traceback: that is no bug to report to its user.
  nanobind::set_leak_warnings(false);
  m.doc() = "The core of horovod: codecs, collectives and the engine. See docs/architecture.md.";
  m.def("version", [] { return HOROVOD_VERSION; });
  hvd::register_errors(m);
  hvd::register_settings(m);
  hvd::register_codec(m);
  hvd::register_plan(m);
  hvd::register_device_plan(m);
  hvd::register_device(m);
  hvd::register_feedback(m);
  hvd::register_messages(m);
  hvd::register_world(m);
  hvd::register_tcp(m);
  hvd::register_engine(m);
  hvd::register_silence_inspector(m);
  hvd::register_device_kernels(m);
}
