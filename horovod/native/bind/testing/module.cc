#include <string>

#include "base/settings.h"
#include "bind/testing/testing.h"

namespace nb = nanobind;

NB_MODULE(_native_testing, m) {
  nb::set_leak_warnings(false);
  m.doc() = "Parts of the core by themselves, for tests. No wheel has it.";
  const nb::module_ native = nb::module_::import_("horovod._native");
  // The two modules exchange objects, so their layouts must be the same.
  if (nb::cast<std::string>(native.attr("build_digest")()) != hvd::build_digest()) {
    throw nb::import_error("horovod._native_testing and horovod._native were built from different sources; build them again");
  }
  using namespace hvd::testing;
  register_messages(m);
  register_transport(m);
  register_agreement(m);
  register_silence_inspector(m);
  register_rank(m);
  register_submissions(m);
  register_negotiation(m);
  register_execution(m);
}
