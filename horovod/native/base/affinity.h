// Which processor core a thread runs on.
#pragma once

#include <optional>
#include <string>

namespace hvd {

// What HOROVOD_THREAD_AFFINITY says for a local rank: "4,5,6,7" names each one's core, "4" that of local rank 0, and the
// others follow. Nothing if it is empty. Throws InvalidArgument for anything else, and for a core this process may not use.
std::optional<int> core_for(const std::string& affinity, int local_rank);

void pin_this_thread(int core);

}  // namespace hvd
