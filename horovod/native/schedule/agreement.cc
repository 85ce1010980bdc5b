#include "schedule/agreement.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace hvd {
namespace {

// The shortest text that reads back as the same number, so that different numbers have different texts.
std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

// "float32" if all tensors of a group have it, else "float32 int64".
std::string dtypes_text(const Request& request) {
  const size_t shown = request.has_one_dtype() ? std::min<size_t>(request.dtypes.size(), 1) : request.dtypes.size();
  return joined(std::span(request.dtypes).first(shown), " ", [](DType dtype) { return std::string(name_of(dtype)); });
}

std::string shapes_text(const Request& request) {
  return joined(request.shapes, " ", [](const Shape& shape) { return to_text(shape); });
}

// The dimensions after the first, for operations whose first dimension may differ by rank.
std::string trailing_text(const Request& request) {
  return joined(request.shapes, " ",
                [](const Shape& shape) { return shape.empty() ? "()" : to_text({shape.begin() + 1, shape.end()}); });
}

std::string dimensions_text(const Request& request) {
  return joined(request.shapes, " ", [](const Shape& shape) { return std::to_string(shape.size()); });
}

struct Property {
  const char* noun;
  std::function<std::string(const Request&)> text;
  const char* remedy;
};

constexpr char kSameCode[] = "Every rank must make the same call under one name";
constexpr char kOnlyFirst[] = "Only the first dimension may differ";

void add_reduction(std::vector<Property>* all) {
  all->push_back({"reduce op", [](const Request& r) { return std::string(name_of(r.op)); }, kSameCode});
  all->push_back({"prescale_factor", [](const Request& r) { return number(r.prescale); }, kSameCode});
  all->push_back({"postscale_factor", [](const Request& r) { return number(r.postscale); }, kSameCode});
  all->push_back({"compression codec", [](const Request& r) { return r.codec.empty() ? "none" : r.codec; },
                  "Give every rank the same compression= with the same options"});
}

std::vector<Property> properties_of(Operation operation) {
  std::vector<Property> all = {
      {"operation", [](const Request& r) { return std::string(name_of(r.operation)); }, kSameCode},
      {"place", [](const Request& r) { return std::string(r.on_gpu ? "on a GPU" : "in CPU memory"); },
       "Move the tensor to a GPU on all ranks, or to CPU memory on all"},
      {"dtype", dtypes_text, "Convert the tensor to one dtype on all ranks"},
      {"number of tensors in the group", [](const Request& r) { return std::to_string(r.shapes.size()); }, kSameCode},
  };
  const OperationKind& kind = kind_of(operation);
  if (kind.reduces) add_reduction(&all);
  if (kind.along_rows != nullptr) {
    all.push_back({"number of dimensions", dimensions_text, kOnlyFirst});
    all.push_back({"dimensions after the first", trailing_text, kOnlyFirst});
  } else {
    all.push_back({"shape", shapes_text, "Pad or slice the tensor to one shape on all ranks"});
  }
  if (kind.has_root) {
    all.push_back({"root rank", [](const Request& r) { return std::to_string(r.root); }, kSameCode});
  }
  if (operation == Operation::kAddProcessSet || operation == Operation::kRemoveProcessSet) {
    all.push_back({"process set", [](const Request& r) { return "[" + joined(r.set, ", ", number_text) + "]"; },
                   "Every rank must add and remove the same process sets in the same order"});
  }
  return all;
}

// The failure of a request that is the same on all ranks and cannot be carried out.
Failure impossibility(const Request& request) {
  if (request.operation == Operation::kAddProcessSet && request.set.empty()) return {Said::set_not_added};
  const char* const along_rows = kind_of(request.operation).along_rows;
  for (const Shape& shape : request.shapes) {
    if (along_rows == nullptr || !shape.empty()) continue;
    std::string call(name_of(request.operation));
    for (char& letter : call) letter = static_cast<char>(letter - 'A' + 'a');
    return {Said::no_dimension, {.tensor = request.name, .others = {{"verb", along_rows}, {"call", call}}}};
  }
  return {};
}

}  // namespace

Failure disagreement(std::span<const RankRequest> requests) {
  const Request& first = *requests.front().request;
  bool all_equal = true;
  for (const RankRequest& one : requests) all_equal &= *one.request == first;
  if (!all_equal) {
    for (const Property& property : properties_of(first.operation)) {
      bool same = true;
      for (const RankRequest& one : requests) same &= property.text(*one.request) == property.text(first);
      if (same) continue;
      Facts facts{.tensor = first.name, .others = {{"property", property.noun}, {"what_to_do", property.remedy}}};
      for (const RankRequest& one : requests) {
        facts.ranks.push_back(one.rank);
        facts.values.push_back(property.text(*one.request));
      }
      return {Said::disagree, std::move(facts)};
    }
  }
  return impossibility(first);
}

void OrderCheck::add(size_t position, const std::string& name, bool is_begun) {
  const uint64_t number = next_[position]++ - first_;
  while (places_.size() <= number) places_.push_back({std::vector<std::string>(next_.size())});
  Place& place = places_[number];
  for (const std::string& other : place.names) {
    if (other.empty() || name.empty()) continue;
    place.differs |= other != name;
    break;  // further names equal this one, or `differs` is set already
  }
  place.names[position] = name;
  ++place.count;
  place.is_begun |= is_begun;
}

std::vector<OrderCheck::Place> OrderCheck::take_differing() {
  std::vector<Place> differing;
  for (; !places_.empty() && places_.front().count == next_.size(); places_.pop_front(), ++first_) {
    if (places_.front().differs) differing.push_back(std::move(places_.front()));
  }
  for (const Place& place : places_) {
    if (place.is_begun && place.differs) differing.push_back(place);
  }
  return differing;
}

bool BegunBatches::add(size_t position, std::span<const uint32_t> ids) {
  auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const BegunBatch& one) { return !one.by[position]; });
  if (batch == batches_.end()) {
    batches_.push_back({{ids.begin(), ids.end()}, std::vector<bool>(ranks_, false)});
    batch = std::prev(batches_.end());
  }
  batch->by[position] = true;
  return std::ranges::equal(batch->ids, ids);
}

}  // namespace hvd
