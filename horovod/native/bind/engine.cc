#include "schedule/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind/bind.h"
#include "bind/world.h"

namespace nb = nanobind;

namespace hvd {
namespace {

DType checked_dtype(int number) {
  if (number < 0 || number >= kDTypeCount) throw InvalidArgument("there is no dtype number " + std::to_string(number));
  return static_cast<DType>(number);
}

TensorRef make_tensor(uintptr_t source, uintptr_t destination, Shape shape, int dtype) {
  for (const int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument("a shape cannot be negative: " + to_text(shape));
  }
  return {reinterpret_cast<const void*>(source), reinterpret_cast<void*>(destination), std::move(shape),
          checked_dtype(dtype)};
}

Reduction make_reduction(int op, double prescale, double postscale, std::shared_ptr<const Codec> codec) {
  if (op < 0 || op > static_cast<int>(ReduceOp::kProduct)) {
    throw InvalidArgument("there is no reduce op number " + std::to_string(op));
  }
  return {static_cast<ReduceOp>(op), prescale, postscale, std::move(codec)};
}

// The core's bytes as an array that keeps them alive.
nb::object buffer_of(const Result& result) {
  auto* owner = new std::shared_ptr<std::byte[]>(result.data);
  nb::capsule keep(owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<std::byte[]>*>(p); });
  const size_t shape[] = {result.bytes};
  return nb::cast(nb::ndarray<nb::array_api, uint8_t, nb::ndim<1>, nb::device::cpu>(result.data.get(), 1, shape, keep));
}

nb::dict counters_of(const Engine& engine) {
  nb::dict all;
#define HVD_READ(member, meaning) all[#member] = engine.counters().member.load();
  HVD_FOR_EACH_COUNTER(HVD_READ)
#undef HVD_READ
  return all;
}

// Python's signal handlers (Ctrl-C, a checkpoint on SIGTERM) run in the main thread only between its own instructions: a
// long wait lets them in now and then.
Result wait_serving_signals(Engine& engine, int64_t handle) {
  constexpr std::chrono::milliseconds kBetweenLooks{100};
  for (;;) {
    {
      nb::gil_scoped_release released;
      if (std::optional<Result> result = engine.wait(handle, kBetweenLooks)) return std::move(*result);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// An engine and the world it lives in: the transport outlives the engine.
struct BoundEngine {
  BoundEngine(World& world, const Settings& settings, bool start_thread)
      : transport(*world.opened.transport),
        engine(transport, settings, start_thread ? Engine::Drive::kThread : Engine::Drive::kManual) {}
  Transport& transport;
  Engine engine;
};

}  // namespace

void register_engine(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<TensorRef>(m, "Tensor")
      .def("__init__",
           [](TensorRef* self, uintptr_t source, uintptr_t destination, Shape shape, int dtype) {
             new (self) TensorRef(make_tensor(source, destination, std::move(shape), dtype));
           },
           "source"_a, "destination"_a, "shape"_a, "dtype"_a);
  nb::class_<Reduction>(m, "Reduction")
      .def("__init__",
           [](Reduction* self, int op, double prescale, double postscale, std::shared_ptr<const Codec> codec) {
             new (self) Reduction(make_reduction(op, prescale, postscale, std::move(codec)));
           },
           "op"_a = 1, "prescale"_a = 1.0, "postscale"_a = 1.0, "codec"_a.none() = nb::none());
  nb::class_<Result>(m, "Result")
      .def_prop_ro("sizes", [](const Result& result) { return result.rows; })
      .def_prop_ro("nbytes", [](const Result& result) { return result.bytes; })
      .def("buffer", buffer_of);
  nb::class_<BoundEngine>(m, "Engine")
      .def(nb::init<World&, const Settings&, bool>(), "world"_a, "settings"_a, "start_thread"_a = true,
           nb::keep_alive<1, 2>())
      .def("allreduce",
           [](BoundEngine& self, std::string name, std::vector<TensorRef> tensors, const Reduction& reduction) {
             return self.engine.submit(allreduce_submission(std::move(name), std::move(tensors), reduction));
           },
           "name"_a, "tensors"_a, "reduction"_a)
      .def("allgather",
           [](BoundEngine& self, std::string name, const TensorRef& tensor) {
             return self.engine.submit(allgather_submission(std::move(name), tensor));
           },
           "name"_a, "tensor"_a)
      .def("broadcast",
           [](BoundEngine& self, std::string name, const TensorRef& tensor, int root) {
             return self.engine.submit(broadcast_submission(std::move(name), tensor, root, self.transport.size()));
           },
           "name"_a, "tensor"_a, "root"_a)
      .def("barrier",
           [](BoundEngine& self, std::string name) { return self.engine.submit(barrier_submission(std::move(name))); },
           "name"_a)
      .def("poll", [](BoundEngine& self, int64_t handle) { return self.engine.is_done(handle); }, "handle"_a)
      .def("wait", [](BoundEngine& self, int64_t handle) { return wait_serving_signals(self.engine, handle); }, "handle"_a)
      .def_prop_ro("has_failed", [](const BoundEngine& self) { return self.engine.has_failed(); })
      .def("step",
           [](BoundEngine& self, double elapsed_ms) {
             return self.engine.step(std::chrono::microseconds(static_cast<int64_t>(elapsed_ms * 1000)));
           },
           "elapsed_ms"_a = 0.0, released())
      .def("counters", [](const BoundEngine& self) { return counters_of(self.engine); })
      .def("shutdown", [](BoundEngine& self) { self.engine.shutdown(); }, released());
}

}  // namespace hvd
