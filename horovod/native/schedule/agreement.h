// Whether all ranks asked for the same thing, and the sentence that says so when they did not.
#pragma once

#include <span>
#include <string>

#include "schedule/request.h"

namespace hvd {

// One rank's request; ranks by their number in the job.
struct RankRequest {
  int rank;
  const Request* request;
};

// `requests` of all ranks that take part, all of one name. Empty if they can be carried out together, else an error for
// every rank: which tensor, which ranks ask for what, and what to do.
std::string disagreement(std::span<const RankRequest> requests);

}  // namespace hvd
