// The rows of format_list.h as data: what names and options stand for, and what a format is called with.
#pragma once

#include <span>
#include <string_view>

#include "codec/codec.h"
#include "codec/format_list.h"

namespace hvd {

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
