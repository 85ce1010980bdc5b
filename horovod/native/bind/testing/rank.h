// The state that the parts of an engine share on one rank, without a thread. A test makes one part over it and drives that.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"
#include "bind/testing/testing.h"
#include "schedule/engine_parts.h"

namespace hvd::testing {

struct Rank : EngineParts {
  // The world outlives it.
  Rank(World& world, const Settings& given) : EngineParts(*world.opened.transport, given, false) {}
};

using OfSet = std::pair<int, Submission>;  // id of the process set, submission

// Settles a caller's submission, as the engine does.
inline Submitted submitted_of(const Rank& rank, int set, Submission submission) {
  const ProcessSets::Pointer found = rank.sets.find(set);
  settle(&submission, found->ranks());
  return {found, std::move(submission)};
}

// A failure with that text.
inline Failure failure_of(const std::string& why) { return Failure::of(std::runtime_error(why)); }

}  // namespace hvd::testing
