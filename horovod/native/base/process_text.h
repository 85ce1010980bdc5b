// What the system knows of another process.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd {

// "process 4711", with "which is stopped (SIGSTOP, or a debugger)" and the like where that keeps it from running.
std::string process_text(pid_t pid);

}  // namespace hvd
