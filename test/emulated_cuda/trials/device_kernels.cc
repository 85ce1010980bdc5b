// device/device_kernels.h as C functions, for tests in Python. As in device.cc, each returns null, or an error.
#include <vector>

#include "attempt.h"
#include "device/device_library.h"

namespace {

using trials::attempt;

hvd::DeviceKernels& kernels(int index) { return hvd::device_library().at(index).kernels(); }

hvd::DType dtype_of(int number) { return static_cast<hvd::DType>(number); }

// A codec in the form that tests pass.
struct Codec {
  int format;
  int is_stochastic;
  int block;
  uint64_t seed;

  operator hvd::DeviceCodec() const {
    return {static_cast<hvd::Coding>(format), is_stochastic != 0, block, seed};
  }
};

struct Reduction {
  int dtype;
  Codec in, out;
  const std::byte* const* messages;
  size_t count;
  double prescale, factor, divisor;
  int to_destination;
  std::byte* result;
};

}  // namespace

#define TRIAL extern "C" __attribute__((visibility("default")))

TRIAL int kernels_piece_bytes() { return sizeof(hvd::DevicePiece); }

TRIAL const char* kernels_encode(int index, void* stream, const Codec* codec, int dtype, const hvd::PieceTable* table,
                                 double prescale, std::byte* message) {
  return attempt([&] { kernels(index).encode(stream, *codec, dtype_of(dtype), *table, prescale, message); });
}
TRIAL const char* kernels_decode(int index, void* stream, const Codec* codec, int dtype, const hvd::PieceTable* table,
                                 const std::byte* message) {
  return attempt([&] { kernels(index).decode(stream, *codec, dtype_of(dtype), *table, message); });
}
TRIAL const char* kernels_reduce(int index, void* stream, const hvd::PieceTable* table, const Reduction* asked) {
  return attempt([&] {
    hvd::DeviceReduction reduction;
    reduction.dtype = dtype_of(asked->dtype);
    reduction.in = asked->in;
    reduction.out = asked->out;
    reduction.messages = {asked->messages, asked->count};
    reduction.prescale = asked->prescale;
    reduction.factor = asked->factor;
    reduction.divisor = asked->divisor;
    reduction.to_destination = asked->to_destination != 0;
    reduction.result = asked->result;
    kernels(index).reduce(stream, *table, reduction);
  });
}
TRIAL const char* kernels_pack(int index, void* stream, int dtype, const hvd::PieceTable* table, double prescale,
                               std::byte* message) {
  return attempt([&] { kernels(index).pack(stream, dtype_of(dtype), *table, prescale, message); });
}
TRIAL const char* kernels_unpack(int index, void* stream, int dtype, const hvd::PieceTable* table, double factor, double divisor,
                                 const std::byte* message) {
  return attempt([&] { kernels(index).unpack(stream, dtype_of(dtype), *table, factor, divisor, message); });
}
TRIAL const char* kernels_take_saturated(int index, int64_t* count) {
  return attempt([&] { *count = kernels(index).take_saturated(); });
}
