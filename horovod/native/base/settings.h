// Every HOROVOD_* variable the core reads: a row of settings_rows.h each, read once when the job is initialised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/settings_rows.h"

namespace hvd {

// Under a hierarchy of Horovod's two variables HOROVOD_ALLREDUCE_ALGORITHM is hierarchical: that is what ranks agree on. Loops
// of any instruction set give the same bytes (test_mixed_simd.py), so hosts with different processors make one job.
struct Settings {
#define HVD_MEMBER(variable, member, type, default_value, reader, is_of_job) type member = default_value;
  HVD_FOR_EACH_SETTING(HVD_MEMBER)
#undef HVD_MEMBER
  // What has asked for stall_shutdown_time_seconds, for errors: no setting of the job. Empty: the variable.
  std::string stall_shutdown_asked_by;

  // Defaults overridden by the environment. Throws InvalidArgument naming the variable and its value.
  static Settings from_environment();
  // Those of the job as text, by which ranks compare them.
  std::string of_job() const;
};

// Of the sources that this library was built from: hexadecimal digits, the same for the same files in horovod/native, whatever
// compiled them. Ranks of one job need the same: the messages between them, and the bytes of codecs, are these files' business.
const char* build_digest();

// Which cores the ranks have, and on which hosts, from every rank's text, in which lines core=... and host=... say so; empty
// if all have the same.
std::string disagreement_of_builds(const std::vector<std::string>& texts);

// Which of the job's settings differ, and on which ranks, from every rank's text; empty if none does.
std::string disagreement_of_settings(const std::vector<std::string>& texts);

}  // namespace hvd
