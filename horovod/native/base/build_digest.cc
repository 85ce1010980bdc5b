// A separate file, since it is recompiled whenever any source changes.
#include "base/settings.h"

namespace hvd {

const char* build_digest() { return HOROVOD_BUILD_DIGEST; }

}  // namespace hvd
