#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "codec/codec.h"
#include "collective/layout.h"
#include "device/device_kernels.h"
#include "device/device_library.h"

namespace nb = nanobind;

namespace hvd {
namespace {

// The GPUs and the NCCL that this process can use.
struct GpuFacts {
  int count = 0;
  std::string why_none;  // the reason, if the count is 0
  std::vector<std::string> names, identities;
  int nccl_version = 0;
  std::string why_no_nccl;  // the reason, if the version is 0
};

GpuFacts gpu_facts() {
  GpuFacts facts;
  try {
    DeviceLibrary& library = device_library();
    facts.nccl_version = library.nccl_version();
    if (facts.nccl_version == 0) facts.why_no_nccl = library.why_no_nccl();
    for (int i = 0; i < library.count(); ++i) {
      facts.names.push_back(library.at(i).name());
      facts.identities.push_back(library.at(i).identity());
    }
    facts.count = library.count();
    if (facts.count == 0) facts.why_none = "this process sees no GPU";
  } catch (const InvalidArgument& error) {
    facts.why_none = facts.why_no_nccl = error.what();
  }
  return facts;
}

// Memory of a GPU, or pinned memory of the host.
struct BoundMemory {
  DeviceMemory memory;
  size_t bytes = 0;
};

struct BoundEvent {
  Event event;
};

// The library keeps its devices until the process ends.
struct BoundDevice {
  Device& device;
};

BoundMemory allocated(BoundDevice& self, int64_t bytes, bool is_pinned) {
  require_not_negative("nbytes", bytes);
  const auto size = static_cast<size_t>(bytes);
  return {is_pinned ? self.device.allocate_pinned(size) : self.device.allocate(size), size};
}

// Whole tensors, concatenated into one message as Bucket lays them out. The table is in GPU memory.
struct Pieces {
  DeviceMemory memory;
  PieceTable table;
  int64_t message_bytes = 0;
};

int64_t piece_bytes(const Codec* codec, DType dtype, int64_t count) {
  if (codec == nullptr) return count * static_cast<int64_t>(size_of(dtype));
  const int64_t rest = count % Tiles::kRun;
  return count / Tiles::kRun * codec->encoded_bytes(Tiles::kRun) + (rest ? codec->encoded_bytes(rest) : 0);
}

Pieces make_pieces(BoundDevice& owner, uintptr_t stream, const std::string& codec_name, int dtype_number,
                   std::vector<DevicePiece> pieces) {
  const DType dtype = dtype_numbered(dtype_number);
  const std::shared_ptr<const Codec> codec = codec_name.empty() ? nullptr : codec_named(codec_name, resolve_simd_level(""));
  Pieces made;
  int64_t elements_bytes = 0;
  for (DevicePiece& piece : pieces) {
    require_not_negative("count", piece.count);
    piece.message_offset = made.message_bytes;
    piece.elements_offset = elements_bytes;
    elements_bytes += piece_bytes(nullptr, dtype, piece.count);
    piece.first_run = made.table.runs;
    made.message_bytes += piece_bytes(codec.get(), dtype, piece.count);
    made.table.runs += (piece.count + Tiles::kRun - 1) / Tiles::kRun;
  }
  Device& device = owner.device;
  const size_t bytes = pieces.size() * sizeof(DevicePiece);
  const DeviceMemory staged = device.allocate_pinned(std::max<size_t>(bytes, 1));
  std::copy(pieces.begin(), pieces.end(), reinterpret_cast<DevicePiece*>(staged.get()));
  made.memory = device.allocate(std::max<size_t>(bytes, 1));
  device.copy(stream_at(stream), made.memory.get(), staged.get(), bytes);
  device.synchronize(device.record(stream_at(stream)));
  made.table.pieces = reinterpret_cast<const DevicePiece*>(made.memory.get());
  made.table.count = static_cast<int64_t>(pieces.size());
  return made;
}

DevicePiece make_piece(uintptr_t source, uintptr_t destination, int64_t count, uintptr_t residual, uint64_t key,
                       int64_t first_number) {
  DevicePiece piece;
  piece.source = reinterpret_cast<const void*>(source);
  piece.destination = reinterpret_cast<void*>(destination);
  piece.residual = reinterpret_cast<float*>(residual);
  piece.count = count;
  piece.key = key;
  piece.first_number = first_number;
  return piece;
}

void encode_on_gpu(BoundDevice& self, uintptr_t stream, const std::string& codec, int dtype, const Pieces& pieces,
                   uintptr_t message, double prescale) {
  self.device.kernels().encode(stream_at(stream), device_codec_named(codec), dtype_numbered(dtype), pieces.table, prescale,
                               bytes_at(message));
}

void decode_on_gpu(BoundDevice& self, uintptr_t stream, const std::string& codec, int dtype, const Pieces& pieces,
                   uintptr_t message) {
  self.device.kernels().decode(stream_at(stream), device_codec_named(codec), dtype_numbered(dtype), pieces.table,
                               bytes_at(message));
}

// The arguments of reduce_on_gpu(), as Python gives them.
struct Sum {
  DeviceReduction reduction;
  std::vector<const std::byte*> messages;
};

Sum make_sum(int dtype, const std::string& codec, const std::string& result_codec, const std::vector<uintptr_t>& messages,
             bool to_destination, uintptr_t result, double divisor) {
  if (messages.empty() || messages.size() > DeviceKernels::kMostContributions) {
    throw InvalidArgument(Said::gpu_sum_count_wrong,
                          {.others = {{"most", DeviceKernels::kMostContributions}, {"count", messages.size()}}});
  }
  if (codec != result_codec && !codec.empty() && !result_codec.empty()) {
    throw InvalidArgument(Said::gpu_sum_recodes, {.others = {{"codec", codec}, {"got", result_codec}}});
  }
  Sum sum;
  for (const uintptr_t message : messages) sum.messages.push_back(bytes_at(message));
  sum.reduction.dtype = dtype_numbered(dtype);
  sum.reduction.in = device_codec_named(codec);
  sum.reduction.out = device_codec_named(result_codec);
  sum.reduction.divisor = divisor;
  sum.reduction.to_destination = to_destination;
  sum.reduction.result = bytes_at(result);
  return sum;
}

void reduce_on_gpu(BoundDevice& self, uintptr_t stream, const Pieces& pieces, const Sum& sum) {
  DeviceReduction reduction = sum.reduction;
  reduction.messages = sum.messages;
  self.device.kernels().reduce(stream_at(stream), pieces.table, reduction);
}

void bind_memory(nb::module_& m) {
  nb::class_<BoundMemory>(m, "DeviceMemory")
      .def_prop_ro("address", [](const BoundMemory& self) { return reinterpret_cast<uintptr_t>(self.memory.get()); })
      .def_prop_ro("nbytes", [](const BoundMemory& self) { return self.bytes; });
  nb::class_<BoundEvent>(m, "DeviceEvent");
}

void bind_pieces(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<DevicePiece>(m, "DevicePiece")
      .def(nb::new_(&make_piece), "source"_a = 0, "destination"_a = 0, "count"_a = 0, "residual"_a = 0, "key"_a = 0,
           "first_number"_a = 0);
  nb::class_<Pieces>(m, "DevicePieces")
      .def(nb::new_(&make_pieces), "device"_a, "stream"_a, "codec"_a, "dtype"_a, "pieces"_a)
      .def_prop_ro("message_bytes", [](const Pieces& self) { return self.message_bytes; });
  nb::class_<Sum>(m, "DeviceSum")
      .def(nb::new_(&make_sum), "dtype"_a, "codec"_a, "result_codec"_a, "messages"_a, "to_destination"_a = false,
           "result"_a = 0, "divisor"_a = 1.0);
}

void bind_device(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<BoundDevice>(m, "Device")
      .def(nb::new_([](int index) { return BoundDevice{device_library().at(index)}; }), "index"_a)
      .def_prop_ro("index", [](const BoundDevice& self) { return self.device.index(); })
      .def_prop_ro("identity", [](const BoundDevice& self) { return self.device.identity(); })
      .def_prop_ro("name", [](const BoundDevice& self) { return self.device.name(); })
      .def(
          "make_stream",
          [](BoundDevice& self, bool is_urgent) { return reinterpret_cast<uintptr_t>(self.device.make_stream(is_urgent)); },
          "is_urgent"_a = false)
      .def(
          "allocate", [](BoundDevice& self, int64_t bytes) { return allocated(self, bytes, false); }, "nbytes"_a)
      .def(
          "allocate_pinned", [](BoundDevice& self, int64_t bytes) { return allocated(self, bytes, true); }, "nbytes"_a)
      .def(
          "copy",
          [](BoundDevice& self, uintptr_t stream, uintptr_t to, uintptr_t source, size_t bytes) {
            self.device.copy(stream_at(stream), bytes_at(to), bytes_at(source), bytes);
          },
          "stream"_a, "to"_a, "source"_a, "nbytes"_a, released())
      .def(
          "record", [](BoundDevice& self, uintptr_t stream) { return BoundEvent{self.device.record(stream_at(stream))}; },
          "stream"_a)
      .def(
          "synchronize", [](BoundDevice& self, const BoundEvent& event) { self.device.synchronize(event.event); }, "event"_a,
          released())
      .def(
          "milliseconds_between",
          [](BoundDevice& self, const BoundEvent& begin, const BoundEvent& end) {
            return self.device.milliseconds_between(begin.event, end.event);
          },
          "begin"_a, "end"_a)
      .def("encode", encode_on_gpu, "stream"_a, "codec"_a, "dtype"_a, "pieces"_a, "message"_a, "prescale"_a = 1.0, released())
      .def("decode", decode_on_gpu, "stream"_a, "codec"_a, "dtype"_a, "pieces"_a, "message"_a, released())
      .def("reduce", reduce_on_gpu, "stream"_a, "pieces"_a, "sum"_a, released())
      .def("take_saturated", [](BoundDevice& self) { return self.device.kernels().take_saturated(); });
}

}  // namespace

void register_device(nb::module_& m) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<GpuFacts>(m, "GpuFacts")
      .def_ro("count", &GpuFacts::count)
      .def_ro("why_none", &GpuFacts::why_none)
      .def_ro("names", &GpuFacts::names)
      .def_ro("identities", &GpuFacts::identities)
      .def_ro("nccl_version", &GpuFacts::nccl_version)
      .def_ro("why_no_nccl", &GpuFacts::why_no_nccl);
  m.def("gpu_facts", gpu_facts, released());
  m.def("nccl_version", [] { return device_library().nccl_version(); }, released());
  m.def("use_device_library", use_device_library, nb::arg("path"));
  m.def("device_library_is_installed", device_library_is_installed);
}

// GPUs and their kernels without an engine, for benchmarks and tests. Addresses and streams are integers.
void register_device_kernels(nb::module_& m) {
  bind_memory(m);
  bind_device(m);
  bind_pieces(m);
}

}  // namespace hvd
