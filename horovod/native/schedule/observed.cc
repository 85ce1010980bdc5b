#include "schedule/observed.h"

#include <algorithm>
#include <cctype>
#include <new>

namespace hvd {

std::vector<ObservedOperation> observed(std::span<const Agreed> together, const std::string& label) {
  std::vector<ObservedOperation> all;
  for (const Agreed& agreed : together) {
    const Request& request = agreed.submission.request;
    const size_t members = request.shapes.size();
    const bool is_adasum = request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum;
    for (size_t i = 0; i < std::max<size_t>(members, 1); ++i) {
      std::string name = label + request.name;
      if (members > 1) name += "_" + std::to_string(i + 1) + "of" + std::to_string(members);
      all.push_back({std::move(name), is_adasum ? "ADASUM" : name_of(request.operation),
                     members == 0 ? "" : name_of(request.dtypes[i]), members == 0 ? "" : to_text(request.shapes[i])});
    }
  }
  return all;
}

void note_route(std::span<ObservedOperation> operations, DType dtype, const Plan& plan) {
  for (ObservedOperation& operation : operations) {
    if (operation.dtype != name_of(dtype)) continue;
    operation.route = name_of(plan.route);
    operation.reason = explain(plan);
  }
}

std::string description_of(std::span<const Agreed> together) {
  int64_t bytes = 0;
  for (const Agreed& agreed : together) bytes += agreed.submission.request.bytes();
  std::string text = "'" + together.front().submission.request.name + "'";
  if (together.size() > 1) text += " and " + std::to_string(together.size() - 1) + " others";
  return text + ", " + std::to_string(bytes) + " bytes";
}

std::string reason_of(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "not enough memory" : error.what();
}

std::string failure_text(const std::string& description, int rank, const std::string& reason) {
  return description + ", failed on rank " + std::to_string(rank) + ": " + reason + ". The job cannot go on";
}

std::string activity(Phase phase, const Request& request, const char* carrier) {
  const bool is_encoded = !request.codec.empty();
  switch (phase) {
    case Phase::kPack:
      return is_encoded ? "ENCODE" : "MEMCPY_IN_FUSION_BUFFER";
    case Phase::kReduce:
      return "REDUCE";
    case Phase::kUnpack:
      return is_encoded ? "DECODE" : "MEMCPY_OUT_FUSION_BUFFER";
    case Phase::kCommunicate:
      break;
  }
  std::string name = carrier;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool is_adasum = request.operation == Operation::kAllreduce && request.op == ReduceOp::kAdasum;
  const bool is_broadcast = request.operation == Operation::kBroadcast;
  return name + "_" + (is_adasum ? "ADASUM_" : "") + (is_broadcast ? "BCAST" : std::string(name_of(request.operation)));
}

}  // namespace hvd
