// A codec turns runs of float32 into bytes and back. The byte formats are described in docs/wire_format.md.
//
// A run is a stretch of one tensor; blocks of `block()` elements share a scale and start at the run's first element, so a
// tensor may be cut into runs at multiples of block() without changing a byte of any block. Codecs are immutable and safe
// to use from any thread.
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

  // Identifies format and options to the other ranks: "bit8/128", and what is not the default, "int4/128/hadamard/seed7".
  virtual const std::string& name() const = 0;
  virtual SimdLevel level() const = 0;
  virtual int64_t block() const = 0;
  virtual int64_t encoded_bytes(int64_t count) const = 0;
  virtual bool is_stochastic() const { return false; }

  // Encodes prescale * source[0..count). Returns how many finite values saturated. `draw` is used if is_stochastic().
  virtual int64_t encode(const float* source, int64_t count, float prescale, Draw draw, uint8_t* run) const = 0;
  virtual void decode(const uint8_t* run, int64_t count, float* destination) const = 0;
  virtual void decode_add(const uint8_t* run, int64_t count, float* accumulator) const = 0;
  // destination = (first + second) * factor, the result of two ranks: in one pass over memory, for most formats.
  virtual void decode_two(const TwoRuns& runs, int64_t count, float factor, float* destination) const = 0;
};

// What a codec can be asked for beside its format. Empty strings and 0 stand for the format's default.
struct CodecOptions {
  int64_t block_size = 0;  // elements that share a scale: 32, 64, ... 1024
  std::string variant;     // of bit8: "e4m3", "e5m2" or "e3m4"
  std::string rounding;    // "nearest" or "stochastic"
  std::string rotation;    // "none" or "hadamard": what int4 does to a block before quantising it
  std::string levels;      // of a rotated int4: "uniform" or "lloyd"
  uint64_t seed = 0;       // of random rounding and of the rotation's signs
};

// What a name stands for: a format, and its options with every default filled in.
struct NamedCodec {
  std::string format;
  CodecOptions options;
};
// Throws InvalidArgument if no codec of this build has that name.
NamedCodec parse_codec_name(const std::string& name);

// A format of format_list.h; at level kScalar the codec is the defining slow twin.
// Throws InvalidArgument for a format that does not exist, or an option that the format has not.
std::shared_ptr<const Codec> make_codec(const std::string& format, const CodecOptions& options, SimdLevel level);
// The codec whose name() another rank has sent. Throws InvalidArgument if no codec of this build has that name.
std::shared_ptr<const Codec> codec_named(const std::string& name, SimdLevel level);

// A row of format_list.h as data: what a name and options stand for, and what a format is called with.
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

// The row that a format with all its options filled in means.
const FormatRow& row_of(const NamedCodec& named);

}  // namespace hvd
