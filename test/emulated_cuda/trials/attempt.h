// How C functions tell a test what was thrown.
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
  } catch (const hvd::InvalidArgument& wrong) {
    error = std::string("InvalidArgument: ") + wrong.what();
  } catch (const hvd::InternalError& wrong) {
    error = std::string("InternalError: ") + wrong.what();
  }
  return error.c_str();
}

}  // namespace trials
