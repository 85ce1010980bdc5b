// What the system knows of another process, and of this host.
#pragma once

#include <sys/types.h>

#include <string>

namespace hvd {

// "process 4711", with "which is stopped (SIGSTOP, or a debugger)" and the like where that keeps it from running.
std::string process_text(pid_t pid);
bool has_ended(pid_t pid);  // whether or not its parent has taken note
std::string host_name();    // "this host" where it has none

}  // namespace hvd
