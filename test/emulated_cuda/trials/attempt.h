// C functions report exceptions to a test this way.
#pragma once

#include <string>

#include "base/error.h"

namespace trials {

template <typename Do>
const char* attempt(Do what) {
  thread_local std::string error;
  try {
    what();
    return nullptr;
  } catch (const hvd::Error& wrong) {
    const hvd::Failure& failure = wrong.failure();
    error = std::string(hvd::name_of(failure.kind)) + "\n" + hvd::code_of(failure.said);
    for (const int rank : failure.facts.ranks) error += "\nrank=" + std::to_string(rank);
    for (const hvd::Fact& fact : failure.facts.others) error += "\n" + fact.name + "=" + fact.value;
  }
  return error.c_str();
}

}  // namespace trials
