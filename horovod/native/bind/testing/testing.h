// horovod._native_testing: single parts of the core, for tests; not in wheels. It shares the types that _native binds, but is a
// second copy of the core's code. So it must not use objects that exist once in a process, such as the device library or MPI.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <span>

#include "base/bytes.h"
#include "bind/bind.h"

namespace hvd::testing {

void register_messages(nanobind::module_& m);
void register_transport(nanobind::module_& m);
void register_agreement(nanobind::module_& m);
void register_silence_inspector(nanobind::module_& m);
void register_rank(nanobind::module_& m);
void register_submissions(nanobind::module_& m);
void register_negotiation(nanobind::module_& m);
void register_execution(nanobind::module_& m);

inline std::span<const std::byte> bytes_of(const nanobind::bytes& text) {
  return {static_cast<const std::byte*>(text.data()), text.size()};
}

// A time of a test's clock.
using TimePoint = std::chrono::steady_clock::time_point;
inline TimePoint at(double milliseconds) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  return TimePoint(std::chrono::duration_cast<TimePoint::duration>(Milliseconds(milliseconds)));
}

}  // namespace hvd::testing
