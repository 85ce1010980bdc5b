#include "collective/carried.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "bind/bind.h"
#include "collective/device/device_carried.h"
#include "device/device_library.h"
#include "schedule/bucket_tensors.h"
#include "schedule/submission.h"

namespace nb = nanobind;

namespace hvd {
namespace {

// Tensors alike in reduction and dtype, and their names.
using PartOfCaller = std::tuple<Reduction, std::vector<std::string>, std::vector<TensorRef>>;

// Who reduces, and where.
struct Caller {
  CarriedPlace place;
  int device = kCpu;
  Stream stream = nullptr;

  bool is_on_gpu() const { return device != kCpu; }
};

// A reduction, and what it keeps in use: feedback and codecs.
struct BoundCarried {
  std::vector<Submission> submissions;
  std::unique_ptr<Carried> carried;
};
struct BoundAllreduce : BoundCarried {};
struct BoundReduceScatter : BoundCarried {};

[[noreturn]] void refuse(const std::string& name, const std::string& why) { throw InvalidArgument("'" + name + "': " + why); }

Caller make_caller(int rank, int size, CarriedRoute route, int device, uintptr_t stream) {
  if (size < 1) throw InvalidArgument("a reduction is of 1 rank or more, not of " + std::to_string(size));
  if (rank < 0 || rank >= size) {
    throw InvalidArgument("rank " + std::to_string(rank) + " is none of " + std::to_string(size) + " ranks: pass 0 to " +
                          std::to_string(size - 1));
  }
  if (device < kCpu) throw InvalidArgument("device is a GPU's number, or -1, not " + std::to_string(device));
  return {{rank, size, route}, device, reinterpret_cast<Stream>(stream)};
}

void check_place(const Submission& submission, const Caller& caller) {
  if (submission.device == caller.device) return;
  auto text = [](int device) { return device == kCpu ? "CPU memory" : "the memory of GPU " + std::to_string(device); };
  refuse(submission.request.name,
         "the tensor is in " + text(submission.device) + ", and messages are in " + text(caller.device));
}

// What the engine refuses of one tensor's operation, and what only messages that others carry cannot do.
Submission checked(std::string name, const TensorRef& tensor, const Reduction& reduction, const Caller& caller) {
  if (reduction.op == ReduceOp::kAdasum) {
    refuse(name, "Adasum needs more than one exchange of messages; reduce it by an Engine");
  }
  Submission submission = allreduce_submission(std::move(name), {tensor}, reduction);
  check_place(submission, caller);
  return submission;
}

void check_alike(const std::vector<Submission>& part) {
  for (const Submission& submission : part) {
    const DType first = part.front().request.dtypes.front(), dtype = submission.request.dtypes.front();
    if (dtype == first) continue;
    refuse(submission.request.name, "the tensor is " + std::string(name_of(dtype)) + ", and the part's first, '" +
                                        part.front().request.name + "', " + std::string(name_of(first)) +
                                        "; make a part for each dtype");
  }
}

void check_apart(const std::vector<std::vector<Submission>>& parts) {
  std::unordered_set<std::string> names;
  std::unordered_set<const Feedback*> feedback;
  for (const auto& part : parts) {
    for (const Submission& submission : part) {
      const std::string& name = submission.request.name;
      if (!names.insert(name).second) refuse(name, "two tensors have that name; give each its own");
      const Feedback* own = submission.tensors.front().feedback.get();
      if (own && !feedback.insert(own).second) refuse(name, "two tensors have one feedback; give each its own");
    }
  }
}

std::vector<Submission> checked(size_t number, const PartOfCaller& part, const Caller& caller) {
  const auto& [reduction, names, tensors] = part;
  if (names.size() != tensors.size() || tensors.empty()) {
    throw InvalidArgument("part " + std::to_string(number) + " has " + std::to_string(names.size()) + " names and " +
                          std::to_string(tensors.size()) + " tensors; pass one or more tensors, and a name for each");
  }
  std::vector<Submission> submissions;
  for (size_t t = 0; t < tensors.size(); ++t) {
    submissions.push_back(checked(names[t], tensors[t], reduction, caller));
  }
  check_alike(submissions);
  return submissions;
}

BucketReduction carried_reduction(const Submission& submission, const Caller& caller) {
  const BucketReduction reduction = reduction_of(submission, submission.request.dtypes.front(), caller.place.size);
  if (caller.is_on_gpu() && !gpu_can_carry(reduction, caller.place.size)) {
    refuse(submission.request.name, "GPUs sum float32, float16 and bfloat16 in rank order, of " +
                                        std::to_string(DeviceKernels::kMostContributions) + " ranks at most, and this is " +
                                        std::string(name_of(submission.request.op)) + " of " +
                                        std::string(name_of(reduction.dtype)) + " over " + std::to_string(caller.place.size) +
                                        "; let the process group reduce it");
  }
  return reduction;
}

BucketTensor carried_tensor(const Submission& submission, const Caller& caller, DrawKeys& keys) {
  return bucket_tensors_of(submission, submission.request.dtypes.front(), caller.place.rank, keys).front().first;
}

SimdLevel simd_level() { return resolve_simd_level(Settings::from_environment().simd); }

BoundAllreduce make_allreduce(const std::vector<PartOfCaller>& given, int rank, int size, bool is_scattered, DrawKeys& keys,
                              int device, uintptr_t stream, int64_t step_elements) {
  const CarriedRoute route = is_scattered ? CarriedRoute::kScatter : CarriedRoute::kGather;
  const Caller caller = make_caller(rank, size, route, device, stream);
  if (step_elements < 0) {
    throw InvalidArgument("step_elements is how many elements are in a step, or 0, not " + std::to_string(step_elements));
  }
  if (given.empty()) throw InvalidArgument("there is nothing to reduce: pass one part or more");
  std::vector<std::vector<Submission>> all;
  for (const PartOfCaller& part : given) all.push_back(checked(all.size(), part, caller));
  check_apart(all);
  std::vector<CarriedPart> parts;
  for (const auto& part : all) parts.push_back({carried_reduction(part.front(), caller), {}});
  BoundAllreduce made;
  for (size_t i = 0; i < all.size(); ++i) {
    for (Submission& submission : all[i]) {
      parts[i].tensors.push_back(carried_tensor(submission, caller, keys));
      made.submissions.push_back(std::move(submission));
    }
  }
  made.carried = caller.is_on_gpu()
                     ? device_carried_allreduce(parts, caller.place, step_elements, device_library().at(device), caller.stream)
                     : carried_allreduce(parts, caller.place, step_elements, simd_level());
  return made;
}

BoundReduceScatter make_reducescatter(const Reduction& reduction, std::string name, const TensorRef& tensor, int rank, int size,
                                      DrawKeys& keys, int device, uintptr_t stream) {
  const Caller caller = make_caller(rank, size, CarriedRoute::kReducescatter, device, stream);
  Submission submission = reducescatter_submission(std::move(name), {tensor}, reduction);
  check_place(submission, caller);
  const int64_t count = element_count(tensor.shape);
  if (count % size != 0) {
    refuse(submission.request.name,
           std::to_string(count) + " elements cannot be cut into equal chunks for " + std::to_string(size) + " ranks");
  }
  const BucketReduction how = carried_reduction(submission, caller);
  const BucketTensor all = carried_tensor(submission, caller, keys);
  BoundReduceScatter made;
  made.carried = caller.is_on_gpu()
                     ? device_carried_reducescatter(how, all, caller.place, device_library().at(device), caller.stream)
                     : carried_reducescatter(how, all, caller.place, simd_level());
  made.submissions.push_back(std::move(submission));
  return made;
}

using Addresses = std::vector<uintptr_t>;

std::vector<std::byte*> all_bytes_at(const Addresses& addresses) {
  std::vector<std::byte*> all;
  for (const uintptr_t address : addresses) all.push_back(bytes_at(address));
  return all;
}

void reduce_into(Carried& carried, size_t step, const Addresses& messages, uintptr_t result) {
  const std::vector<std::byte*> from = all_bytes_at(messages);
  carried.reduce(step, {from.data(), from.size()}, bytes_at(result));
}

template <typename T>
void bind_properties(nb::class_<T>& carried) {
  carried.def_prop_ro("message_bytes", [](const T& self) { return self.carried->message_bytes(); })
      .def_prop_ro("saturated", [](const T& self) { return self.carried->saturated(); });
}

}  // namespace

void register_carried(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<DrawKeys>(m, "DrawKeys").def(nb::init<>());
  nb::class_<BoundAllreduce> allreduce(m, "CarriedAllreduce");
  bind_properties(allreduce);
  allreduce
      .def(nb::new_(&make_allreduce), "parts"_a, "rank"_a, "size"_a, "is_scattered"_a, "keys"_a, "device"_a = kCpu,
           "stream"_a = 0, nb::kw_only(), "step_elements"_a = 0)
      .def_prop_ro("steps", [](const BoundAllreduce& self) { return self.carried->steps(); })
      .def_prop_ro("result_bytes", [](const BoundAllreduce& self) { return self.carried->result_bytes(); })
      .def(
          "pack", [](BoundAllreduce& self, const Addresses& to, size_t step) { self.carried->pack(step, all_bytes_at(to)); },
          "to"_a, "step"_a = 0, released())
      .def(
          "reduce",
          [](BoundAllreduce& self, const Addresses& messages, uintptr_t result, size_t step) {
            reduce_into(*self.carried, step, messages, result);
          },
          "messages"_a, "result"_a = 0, "step"_a = 0, released())
      .def(
          "unpack",
          [](BoundAllreduce& self, const Addresses& results, size_t step) {
            const std::vector<std::byte*> from = all_bytes_at(results);
            self.carried->unpack(step, {from.data(), from.size()});
          },
          "results"_a, "step"_a = 0, released());
  nb::class_<BoundReduceScatter> reducescatter(m, "CarriedReduceScatter");
  bind_properties(reducescatter);
  reducescatter
      .def(nb::new_(&make_reducescatter), "reduction"_a, "name"_a, "tensor"_a, "rank"_a, "size"_a, "keys"_a, "device"_a = kCpu,
           "stream"_a = 0)
      .def(
          "pack", [](BoundReduceScatter& self, const Addresses& to) { self.carried->pack(0, all_bytes_at(to)); }, "to"_a,
          released())
      .def(
          "reduce", [](BoundReduceScatter& self, const Addresses& messages) { reduce_into(*self.carried, 0, messages, 0); },
          "messages"_a, released());
}

}  // namespace hvd
