// Which sources this library was built from.
#pragma once

namespace hvd {

// Hexadecimal digits, the same for the same files in horovod/native, whatever compiled them. Ranks of one job need the same:
// the messages between them, and the bytes of codecs, are these files' business.
const char* build_digest();

}  // namespace hvd
