// The error tree of base/error.h as Python exceptions.
#include "base/error.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {

void register_errors(nb::module_& m) {
  nb::register_exception_translator(
      [](const std::exception_ptr& raised, void*) {
        try {
          std::rethrow_exception(raised);
        } catch (const InternalError& error) {
          const nb::object type = nb::module_::import_("horovod.common.exceptions").attr("HorovodInternalError");
          PyErr_SetString(type.ptr(), error.what());
        } catch (const Error& error) {
          PyErr_SetString(PyExc_ValueError, error.what());
        }
      },
      nullptr);
  static_cast<void>(m);
}

}  // namespace hvd
