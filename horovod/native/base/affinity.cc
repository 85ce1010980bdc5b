#include "base/affinity.h"

#include <sched.h>

#include <charconv>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const std::string& affinity, const std::string& why) {
  throw InvalidArgument("HOROVOD_THREAD_AFFINITY='" + affinity + "' " + why);
}

std::vector<int> cores_in(const std::string& affinity) {
  std::vector<int> cores;
  std::istringstream words(affinity);
  for (std::string word; std::getline(words, word, ',');) {
    int core = -1;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, core);
    if (error != std::errc() || stop != end || core < 0) refuse(affinity, "is no list of core numbers, as 0,1,2,3");
    cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::optional<int> core_for(const std::string& affinity, int local_rank) {
  if (affinity.empty()) return std::nullopt;
  const std::vector<int> cores = cores_in(affinity);
  const auto place = static_cast<size_t>(local_rank);
  if (cores.size() > 1 && place >= cores.size()) {
    refuse(affinity, "names no core for local rank " + std::to_string(local_rank) + "; give one for each local rank");
  }
  const int core = cores.size() == 1 ? cores[0] + local_rank : cores[place];
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed)) {
    refuse(affinity, "gives local rank " + std::to_string(local_rank) + " core " + std::to_string(core) +
                         ", which this process may not run on; `taskset -cp $$` shows those it may");
  }
  return core;
}

void pin_this_thread(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) throw InternalError("cannot run on core " + std::to_string(core));
}

}  // namespace hvd
