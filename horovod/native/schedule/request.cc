#include "schedule/request.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/text.h"

namespace hvd {
namespace {

constexpr OperationKind kKinds[] = {
#define HVD_KIND(value, ...) {__VA_ARGS__},
    HVD_FOR_EACH_OPERATION(HVD_KIND)
#undef HVD_KIND
};

}  // namespace

const OperationKind& kind_of(Operation operation) { return kKinds[static_cast<size_t>(operation)]; }

Operation last_of(Operation) { return static_cast<Operation>(std::size(kKinds) - 1); }

int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string to_text(const Shape& shape) { return "(" + joined(shape, ", ", number_text) + (shape.size() == 1 ? ",)" : ")"); }

int64_t Request::bytes_of(size_t tensor) const {
  return element_count(shapes[tensor]) * static_cast<int64_t>(size_of(dtypes[tensor]));
}

int64_t Request::bytes() const {
  int64_t bytes = 0;
  for (size_t t = 0; t < shapes.size(); ++t) bytes += bytes_of(t);
  return bytes;
}

int64_t Request::row_bytes_of(size_t tensor) const {
  const Shape& shape = shapes[tensor];
  return element_count({shape.begin() + 1, shape.end()}) * static_cast<int64_t>(size_of(dtypes[tensor]));
}

bool Request::has_one_dtype() const {
  return std::all_of(dtypes.begin(), dtypes.end(), [&](DType dtype) { return dtype == dtypes.front(); });
}

void Request::check(const ByteReader& in) const {
  auto refuse = [&](const std::string& what) {
    in.refuse("asks for " + std::string(name_of(operation)) + " of '" + name + "' with " + what);
  };
  const size_t count = shapes.size();
  if (dtypes.size() != count) refuse(std::to_string(dtypes.size()) + " dtypes of " + std::to_string(count) + " tensors");
  using Tensors = OperationKind::Tensors;
  const Tensors expected = kind_of(operation).tensors;
  if (expected == Tensors::kGroup ? count == 0 : count != (expected == Tensors::kOne ? 1 : 0)) {
    refuse(std::to_string(count) + " tensors");
  }
  int64_t total = 0;
  for (size_t t = 0; t < count; ++t) {
    // An empty dimension counts as 1, since sizes are also computed from some of the dimensions.
    auto bytes = static_cast<int64_t>(size_of(dtypes[t]));
    bool fits = true;
    for (const int64_t length : shapes[t]) {
      fits = fits && length >= 0 && !__builtin_mul_overflow(bytes, std::max<int64_t>(length, 1), &bytes);
    }
    if (!fits || __builtin_add_overflow(total, bytes, &total)) refuse("the shape " + to_text(shapes[t]));
  }
}

void Item::check(const ByteReader& in) const {
  for (const int64_t one : rows) {
    if (one < 0) in.refuse("says that '" + name + "' has " + std::to_string(one) + " rows");
  }
  if (request && request->operation != Operation::kAllreduce && request->operation != Operation::kTune) {
    in.refuse("has ranks that have joined take part in " + std::string(name_of(request->operation)));
  }
}

void Announcement::check(const ByteReader& in) const {
  bool is_right = is_begun != batches.empty();
  for (size_t i = 0; is_right && i < batches.size(); ++i) is_right = batches[i] > (i == 0 ? 0 : batches[i - 1]);
  if (is_right && is_begun) is_right = batches.back() == ids.size() && requests.empty();
  if (!is_right) in.refuse("begins operations that cannot be");
}

void Response::check(const ByteReader& in) const {
  const bool is_on_items = kind == ResponseKind::kRun || kind == ResponseKind::kRelease || kind == ResponseKind::kAskOfPass;
  if (is_on_items && items.empty()) in.refuse("responds to nothing");
}

}  // namespace hvd
