#include "schedule/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "base/error.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace hvd {
namespace {

TensorRef make_tensor(uintptr_t source, uintptr_t destination, Shape shape, int dtype, std::shared_ptr<Feedback> feedback,
                      int device, uintptr_t stream, uintptr_t witness) {
  if (device < kCpu) throw InvalidArgument(Said::device_wrong, {.others = {{"value", device}}});
  for (const int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument(Said::shape_negative, {.others = {{"value", to_text(shape)}}});
  }
  return {bytes_at(source),    bytes_at(destination),
          std::move(shape),    dtype_numbered(dtype),
          std::move(feedback), device,
          stream_at(stream),   witness_at(reinterpret_cast<const uintptr_t*>(witness))};
}

void make_reduction(Reduction* self, int op, double prescale, double postscale, std::shared_ptr<const Codec> codec) {
  new (self) Reduction{reduce_op_numbered(op), prescale, postscale, std::move(codec)};
}

// An array over the core's bytes, which it keeps alive.
nb::object array_of(const std::shared_ptr<std::byte[]>& data, size_t bytes) {
  auto* owner = new std::shared_ptr<std::byte[]>(data);
  nb::capsule keep(owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<std::byte[]>*>(p); });
  const size_t shape[] = {bytes};
  return nb::cast(nb::ndarray<nb::array_api, uint8_t, nb::ndim<1>, nb::device::cpu>(data.get(), 1, shape, keep));
}

nb::object buffer_of(const Result& result) {
  if (result.device != nullptr) throw InvalidArgument(Said::result_on_gpu);
  return array_of(result.data, result.bytes);
}

nb::dict counters_of(const ProcessSet& set) {
  nb::dict all;
#define HVD_READ(member, meaning) all[#member] = set.counters().member.load();
  HVD_FOR_EACH_COUNTER(HVD_READ)
#undef HVD_READ
  return all;
}

// Waits for a handle and lets Python's signal handlers (Ctrl-C, a checkpoint on SIGTERM) run now and then. Python runs them in
// the main thread, and only between two of its instructions.
template <typename Wait>
auto wait_serving_signals(Engine& engine, int64_t handle, bool may_yield, Wait wait) {
  // Most waits are too short for a report to rank 0.
  constexpr std::chrono::milliseconds kBeforeItIsNoted{5}, kBetweenLooks{100};
  for (std::chrono::milliseconds timeout = kBeforeItIsNoted;; timeout = kBetweenLooks) {
    {
      nb::gil_scoped_release released;
      if (auto result = wait(timeout)) return std::move(*result);
      engine.note_blocked(handle, may_yield);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// An engine, as Python has it. A forked child can neither call nor destroy it: its thread does not exist there, and its locks
// may be held.
class BoundEngine {
 public:
  BoundEngine(World& world, const Settings& settings, bool start_thread, bool in_order)
      : rank_(world.opened.transport->rank()),
        engine_(std::make_unique<Engine>(*world.opened.transport, settings,
                                         start_thread ? Engine::Drive::kThread : Engine::Drive::kManual, in_order)) {}
  BoundEngine(const BoundEngine&) = delete;
  ~BoundEngine() {
    if (!process_.is_this()) static_cast<void>(engine_.release());
  }
  Engine& engine() const {
    if (process_.is_this()) return *engine_;
    throw InternalError(Said::forked, {.ranks = {rank_}});
  }

 private:
  const int rank_;
  const OwnProcess process_;
  std::unique_ptr<Engine> engine_;
};

// A function of the engine as a method of BoundEngine.
template <typename R, typename... Args>
auto of_engine(R (Engine::*call)(Args...)) {
  return [call](BoundEngine& self, Args... args) { return (self.engine().*call)(args...); };
}

// Submits to a process set, or to all ranks, what `make` makes of Python's arguments.
template <typename... Args>
auto submits(Submission (*make)(Args...)) {
  return
      [make](BoundEngine& self, Args... args, int set) { return self.engine().submit(set, make(std::forward<Args>(args)...)); };
}
template <typename... Args>
auto submits_to_all(Submission (*make)(Args...)) {
  return [make](BoundEngine& self, Args... args) { return self.engine().submit(0, make(std::forward<Args>(args)...)); };
}

nb::object memory_for_result(BoundEngine& self, size_t bytes) {
  return bytes < ResultMemory::kSmallest ? nb::none() : array_of(self.engine().results().take(bytes), bytes);
}

void bind_collectives(nb::class_<BoundEngine>& engine) {
  using namespace nb::literals;
  engine.def("memory", memory_for_result, "nbytes"_a, nb::sig("def memory(self, nbytes: int) -> typing.Any"))
      .def_prop_ro("idle_bytes", [](const BoundEngine& self) { return self.engine().results().idle_bytes(); })
      .def_prop_ro("has_ended", [](const BoundEngine& self) { return self.engine().has_ended(); })
      .def(
          "allreduce",
          [](BoundEngine& self, std::string name, std::vector<TensorRef> tensors, const Reduction& reduction, int set,
             bool follows) {
            Submission submission = allreduce_submission(std::move(name), std::move(tensors), reduction);
            submission.request.follows = follows;
            return self.engine().submit(set, std::move(submission));
          },
          "name"_a, "tensors"_a, "reduction"_a, "process_set"_a = 0, "follows"_a = false)
      .def("reducescatter", submits(reducescatter_submission), "name"_a, "tensors"_a, "reduction"_a, "process_set"_a = 0)
      .def("allgather", submits(allgather_submission), "name"_a, "tensors"_a, "process_set"_a = 0)
      .def("broadcast", submits(broadcast_submission), "name"_a, "tensor"_a, "root"_a, "process_set"_a = 0)
      .def("alltoall", submits(alltoall_submission), "name"_a, "tensor"_a, "splits"_a, "process_set"_a = 0)
      .def("barrier", submits(barrier_submission), "name"_a, "process_set"_a = 0)
      .def("tune", submits_to_all(tune_submission), "name"_a, "settings"_a)
      .def_prop_ro("tuned", [](const BoundEngine& self) { return self.engine().tuned(); })
      .def("join", submits_to_all(join_submission));
}

Result wait_for(BoundEngine& self, int64_t handle) {
  Engine& engine = self.engine();
  return wait_serving_signals(engine, handle, false, [&](auto timeout) { return engine.wait(handle, timeout); });
}

bool wait_or_yield(BoundEngine& self, int64_t handle) {
  Engine& engine = self.engine();
  using Seen = HandleTable::Seen;
  return wait_serving_signals(engine, handle, true, [&](auto timeout) -> std::optional<bool> {
    const Seen seen = engine.wait_for_result(handle, timeout);
    return seen == Seen::kNothing ? std::nullopt : std::optional<bool>(seen == Seen::kResult);
  });
}

void bind_waiting(nb::class_<BoundEngine>& engine) {
  using namespace nb::literals;
  engine
      .def(
          "missing",
          [](BoundEngine& self, std::string name, const std::vector<std::string>& gradients, const std::vector<bool>& has_part,
             int set, bool ends, const std::string& anchor) {
            return self.engine().submit(set, missing_submission(std::move(name), gradients, has_part, ends, anchor));
          },
          "name"_a, "gradients"_a, "has_part"_a, "process_set"_a = 0, "ends"_a = false, "anchor"_a = "")
      .def("note_pass", of_engine(&Engine::note_pass), "is_in_pass"_a)
      .def("hold", of_engine(&Engine::hold))
      .def("let_go", of_engine(&Engine::let_go))
      .def("poll", of_engine(&Engine::is_done), "handle"_a)
      .def("has_result", of_engine(&Engine::has_result), "handle"_a)
      .def("wait", wait_for, "handle"_a)
      .def(
          "has_result_within",
          [](BoundEngine& self, int64_t handle, double seconds) {
            const std::chrono::microseconds limit{static_cast<int64_t>(seconds * 1e6)};
            return self.engine().wait_for_result(handle, limit, false) == HandleTable::Seen::kResult;
          },
          "handle"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("wait_or_yield", wait_or_yield, "handle"_a)
      .def(
          "must_yield",
          [](BoundEngine& self, int64_t handle) {
            return self.engine().wait_for_result(handle, std::chrono::microseconds(0)) == HandleTable::Seen::kReleased;
          },
          "handle"_a)
      .def("note_blocked", of_engine(&Engine::note_blocked), "handle"_a, "may_yield"_a);
}

void bind_timeline(nb::class_<BoundEngine>& engine) {
  using namespace nb::literals;
  engine
      .def(
          "start_timeline",
          [](BoundEngine& self, const std::string& path, bool mark_cycles, bool continues) {
            self.engine().observers().start_timeline(path, mark_cycles, continues);
          },
          "path"_a, "mark_cycles"_a = false, "continues"_a = false)
      .def(
          "note_span",
          [](BoundEngine& self, const std::string& name, double begin, double seconds, const std::string& arguments) {
            using Clock = std::chrono::steady_clock;
            const auto of_clock = [](double time) {
              return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time));
            };
            const Clock::time_point at(of_clock(begin));
            self.engine().observers().note_span(name, at, at + of_clock(seconds), arguments);
          },
          "name"_a, "begin"_a, "seconds"_a, "arguments"_a = "{}")
      .def("stop_timeline", of_engine(&Engine::stop_timeline), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void register_engine(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<TensorRef>(m, "Tensor")
      .def(
          "__init__",
          [](TensorRef* self, uintptr_t source, uintptr_t destination, Shape shape, int dtype,
             std::shared_ptr<Feedback> feedback, int device, uintptr_t stream, uintptr_t witness) {
            new (self) TensorRef(
                make_tensor(source, destination, std::move(shape), dtype, std::move(feedback), device, stream, witness));
          },
          "source"_a, "destination"_a, "shape"_a, "dtype"_a, "feedback"_a.none() = nb::none(), "device"_a = kCpu,
          "stream"_a = 0, "witness"_a = 0);
  nb::class_<Reduction>(m, "Reduction")
      .def("__init__", make_reduction, "op"_a = 1, "prescale"_a = 1.0, "postscale"_a = 1.0, "codec"_a.none() = nb::none());
  nb::class_<Result>(m, "Result")
      .def_ro("sizes", &Result::rows)
      .def_ro("nbytes", &Result::bytes)
      .def_ro("is_completed", &Result::is_completed)
      .def("buffer", buffer_of, nb::sig("def buffer(self) -> typing.Any"))
      .def(
          "order", [](const Result& result, uintptr_t stream) { result.order(stream_at(stream)); }, "stream"_a)
      .def(
          "copy_to",
          [](const Result& result, size_t offset, uintptr_t address, size_t nbytes, uintptr_t stream) {
            result.copy_to(offset, bytes_at(address), nbytes, stream_at(stream));
          },
          "offset"_a, "address"_a, "nbytes"_a, "stream"_a);
  nb::class_<BoundEngine> engine(m, "Engine");
  engine
      .def(nb::init<World&, const Settings&, bool, bool>(), "world"_a, "settings"_a, "start_thread"_a = true,
           "in_order"_a = false, nb::keep_alive<1, 2>())
      .def_prop_ro("has_failed", [](const BoundEngine& self) { return self.engine().has_failed(); })
      .def(
          "step",
          [](BoundEngine& self, double elapsed_ms) {
            return self.engine().step(std::chrono::microseconds(static_cast<int64_t>(elapsed_ms * 1000)));
          },
          "elapsed_ms"_a = 0.0, released())
      .def(
          "counters", [](BoundEngine& self, int set) { return counters_of(*self.engine().process_sets().find(set)); },
          "process_set"_a = 0, nb::sig("def counters(self, process_set: int = 0) -> dict[str, int]"))
      .def("cpu_microseconds", [](BoundEngine& self) { return self.engine().cpu_time().count(); })
      .def("shutdown", of_engine(&Engine::shutdown), released())
      .def("add_process_set", submits_to_all(add_process_set_submission), "ranks"_a)
      .def("remove_process_set", submits_to_all(remove_process_set_submission), "process_set"_a)
      .def("process_sets", [](BoundEngine& self) { return self.engine().process_sets().ranks_by_id(); });
  bind_collectives(engine);
  bind_waiting(engine);
  bind_timeline(engine);
}

}  // namespace hvd
