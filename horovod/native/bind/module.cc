#include "bind/bind.h"

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
