#include "base/build_digest.h"

namespace hvd {

const char* build_digest() { return HOROVOD_BUILD_DIGEST; }

}  // namespace hvd
