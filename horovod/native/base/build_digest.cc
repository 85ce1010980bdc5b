// A file of its own: it alone is compiled anew whenever any other has changed.
#include "base/settings.h"

namespace hvd {

const char* build_digest() { return HOROVOD_BUILD_DIGEST; }

}  // namespace hvd
