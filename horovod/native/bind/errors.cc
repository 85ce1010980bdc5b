// The error tree of base/error.h as Python exceptions.
#include <cstring>

#include "base/error.h"
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
