// The Python module `_native`. Each file of this folder binds the classes of one subject; horovod/_native.pyi documents them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "base/process.h"
#include "collective/reduce.h"
#include "device/stream.h"
#include "transport/open.h"

namespace hvd {

// Python passes addresses as integers.
inline std::byte* bytes_at(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
inline Stream stream_at(uintptr_t address) { return reinterpret_cast<Stream>(address); }

// Python passes enumerators as numbers. `unknown`: the error for other numbers.
template <typename Enum>
Enum numbered(int number, Said unknown) {
  if (number < 0 || number > static_cast<int>(last_of(Enum{}))) throw InvalidArgument(unknown, {.others = {{"value", number}}});
  return static_cast<Enum>(number);
}
inline DType dtype_numbered(int number) { return numbered<DType>(number, Said::dtype_unknown); }
inline ReduceOp reduce_op_numbered(int number) { return numbered<ReduceOp>(number, Said::reduce_op_unknown); }

inline void require_not_negative(const char* parameter, int64_t value) {
  if (value < 0) throw InvalidArgument(Said::negative, {.others = {{"parameter", parameter}, {"value", value}}});
}

void register_errors();
void register_settings(nanobind::module_& m);
void register_codec(nanobind::module_& m);
void register_feedback(nanobind::module_& m);
void register_world(nanobind::module_& m);
void register_tcp(nanobind::module_& m);
void register_plan(nanobind::module_& m);
void register_device(nanobind::module_& m);
void register_engine(nanobind::module_& m);
void register_device_kernels(nanobind::module_& m);

// The class World of Python: a transport, and its MPI if it has one. A forked child does not destroy them.
struct World {
  explicit World(OpenedTransport transport) : opened(std::move(transport)) {}
  World(const World&) = delete;
  ~World() {
    if (!process.is_this()) static_cast<void>(opened.transport.release());
  }
  OpenedTransport opened;
  OwnProcess process;
};

}  // namespace hvd
