// A codec turns runs of float32 into bytes and back. docs/wire_format.md describes the byte formats.
//
// A run is a part of one tensor. Blocks of `block()` elements share a scale, and start at the run's first element. So a tensor
// may be cut into runs at multiples of block() without changing the bytes of any block. Codecs are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/simd.h"
#include "codec/format_list.h"
#include "codec/kernels.h"

namespace hvd {

class Codec {
 public:
  virtual ~Codec() = default;

  // Identifies format and options to other ranks: "bit8/128"; options that are not the default follow:
  // "int4/128/hadamard/seed7".
  virtual const std::string& name() const = 0;
  virtual SimdLevel level() const = 0;
  virtual int64_t block() const = 0;
  virtual int64_t encoded_bytes(int64_t count) const = 0;
  virtual bool is_stochastic() const { return false; }

  // Encodes prescale * source[0..count). Returns the number of finite values that saturated. `draw` is used if is_stochastic().
  virtual int64_t encode(const float* source, int64_t count, float prescale, Draw draw, uint8_t* run) const = 0;
  virtual void decode(const uint8_t* run, int64_t count, float* destination) const = 0;
  virtual void decode_add(const uint8_t* run, int64_t count, float* accumulator) const = 0;
  // destination = (first + second) * factor, for two ranks; for most formats in one pass over memory.
  virtual void decode_two(const TwoRuns& runs, int64_t count, float factor, float* destination) const = 0;
};

// Options of a codec. Empty strings and 0 stand for the format's default.
struct CodecOptions {
  int64_t block_size = 0;  // elements that share a scale: 32, 64, ... 1024
  std::string variant;     // of bit8: "e4m3", "e5m2" or "e3m4"
  std::string rounding;    // "nearest" or "stochastic"
  std::string rotation;    // "none" or "hadamard": the transform of an int4 block before quantisation
  std::string levels;      // of rotated int4: "uniform" or "lloyd"
  uint64_t seed = 0;       // of stochastic rounding and of the rotation's signs
};

// A format and its options, with all defaults filled in.
struct NamedCodec {
  std::string format;
  CodecOptions options;
};
// Throws InvalidArgument if no codec of this build has that name.
NamedCodec parse_codec_name(const std::string& name);

// Makes a codec of a format in format_list.h. At level kScalar it is the slow reference. Throws InvalidArgument for an unknown
// format, or an option that the format does not have.
std::shared_ptr<const Codec> make_codec(const std::string& format, const CodecOptions& options, SimdLevel level);
// Returns the codec with a name() from another rank. Throws InvalidArgument if this build has no such codec.
std::shared_ptr<const Codec> codec_named(const std::string& name, SimdLevel level);

// A row of format_list.h as data.
struct FormatRow {
  Coding coding;
  std::string_view format;
  std::string_view variant;
  int bits;  // of a code
  int scale_bytes;
  bool rotated;
  bool lloyd;

  bool has_blocks() const { return scale_bytes != 0; }
};

std::span<const FormatRow> format_rows();

// The row of a format with all its options filled in.
const FormatRow& row_of(const NamedCodec& named);

}  // namespace hvd
