#include "base/bytes.h"

#include "base/error.h"

namespace hvd {

void ByteReader::refuse(const std::string& what) const {
  throw InternalError("rank " + std::to_string(from_) + " sent a message that " + what +
                      ". The ranks run different builds, or it was damaged on its way; install the same build everywhere");
}

}  // namespace hvd
