#include "base/process_text.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <iterator>

namespace hvd {
namespace {

// The letter in /proc/PID/stat, behind the name, which may hold anything; 0 if there is none.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

}  // namespace

std::string process_text(pid_t pid) {
  std::string process = "process " + std::to_string(pid);
  switch (state_of(pid)) {
    case 'T':
      return process + ", which is stopped: by SIGSTOP, Ctrl-Z or a scheduler";
    case 't':
      return process + ", which a debugger has stopped";
    case 'D':
      return process + ", which waits in the system, as for a disk or a network file system";
    case 'Z':
      return process + ", which has ended";
    default:
      return process;
  }
}

bool has_ended(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  const char state = state_of(pid);
  return state == 'Z' || state == 'X';
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "this host";
}

}  // namespace hvd
