#include "schedule/agreement.h"

#include <charconv>
#include <functional>
#include <utility>

namespace hvd {
namespace {

// The shortest text that reads back as the same number, so that two numbers differ where their texts do.
std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string shapes_text(const Request& request) {
  std::string text;
  for (const Shape& shape : request.shapes) text += (text.empty() ? "" : " ") + to_text(shape);
  return text;
}

// "rank 0: (3,); ranks 1, 2: (4,)"
std::string by_rank(std::span<const Request> requests, const std::function<std::string(const Request&)>& property) {
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    const std::string value = property(requests[rank]);
    size_t g = 0;
    while (g < groups.size() && groups[g].first != value) ++g;
    if (g == groups.size()) groups.push_back({value, {}});
    groups[g].second.push_back(rank);
  }
  std::string text;
  for (const auto& [value, ranks] : groups) {
    text += (text.empty() ? "" : "; ") + std::string(ranks.size() == 1 ? "rank " : "ranks ");
    for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    text += ": " + value;
  }
  return text;
}

struct Property {
  const char* noun;
  std::function<std::string(const Request&)> text;
  const char* remedy;
};

constexpr char kSameCode[] = "Every rank must make the same call under one name";

std::vector<Property> properties_of(Operation operation) {
  std::vector<Property> all = {
      {"operation", [](const Request& r) { return std::string(name_of(r.operation)); }, kSameCode},
      {"dtype", [](const Request& r) { return std::string(name_of(r.dtype)); },
       "Convert the tensor to one dtype on all ranks"},
  };
  if (operation == Operation::kAllreduce) {
    all.push_back({"number of tensors in the group",
                   [](const Request& r) { return std::to_string(r.shapes.size()); }, kSameCode});
    all.push_back({"reduce op", [](const Request& r) { return std::string(name_of(r.op)); }, kSameCode});
    all.push_back({"prescale_factor", [](const Request& r) { return number(r.prescale); }, kSameCode});
    all.push_back({"postscale_factor", [](const Request& r) { return number(r.postscale); }, kSameCode});
    all.push_back({"compression codec", [](const Request& r) { return r.codec.empty() ? "none" : r.codec; },
                   "Give every rank the same compression= with the same options"});
  }
  if (operation == Operation::kAllreduce || operation == Operation::kBroadcast) {
    all.push_back({"shape", shapes_text, "Pad or slice the tensor to one shape on all ranks"});
  }
  if (operation == Operation::kBroadcast) {
    all.push_back({"root rank", [](const Request& r) { return std::to_string(r.root); }, kSameCode});
  }
  if (operation == Operation::kAllgather) {
    all.push_back({"number of dimensions", [](const Request& r) { return std::to_string(r.shapes[0].size()); },
                   "Only the first dimension may differ"});
    all.push_back({"dimensions after the first",
                   [](const Request& r) {
                     return r.shapes[0].empty() ? "()" : to_text({r.shapes[0].begin() + 1, r.shapes[0].end()});
                   },
                   "Only the first dimension may differ"});
  }
  return all;
}

}  // namespace

std::string disagreement(std::span<const Request> requests) {
  const Request& first = requests.front();
  bool all_equal = true;
  for (const Request& request : requests) all_equal &= request == first;
  if (!all_equal) {
    for (const Property& property : properties_of(first.operation)) {
      bool same = true;
      for (const Request& request : requests) same &= property.text(request) == property.text(first);
      if (same) continue;
      return "ranks disagree on the " + std::string(property.noun) + " of '" + first.name + "': " +
             by_rank(requests, property.text) + ". " + property.remedy + ". The job can go on";
    }
  }
  if (first.operation == Operation::kAllgather && first.shapes[0].empty()) {
    return "'" + first.name + "' has no dimensions to gather along. Reshape it to (1,) before allgather. The job can go on";
  }
  return "";
}

}  // namespace hvd
