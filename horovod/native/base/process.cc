#include "base/process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hvd {
namespace {

std::atomic<int> forks{0};

// Throws if forks cannot be counted.
void count_forks() {
  static const int failure = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  if (failure != 0) throw StartupError(Said::cannot_count_forks);
}

// The state letter in /proc/PID/stat, 0 if there is none. It follows the name, which may contain any character.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

[[noreturn]] void refuse(const std::string& affinity, Said said, std::vector<Fact> others = {}) {
  others.emplace_back("setting", "HOROVOD_THREAD_AFFINITY");
  others.emplace_back("value", affinity);
  throw InvalidArgument(said, {.others = std::move(others)});
}

std::vector<int> cores_in(const std::string& affinity) {
  std::vector<int> cores;
  std::istringstream words(affinity);
  for (std::string word; std::getline(words, word, ',');) {
    int core = -1;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, core);
    if (error != std::errc() || stop != end || core < 0) refuse(affinity, Said::no_core_numbers);
    cores.push_back(core);
  }
  return cores;
}

std::chrono::nanoseconds time_of(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

OwnProcess::OwnProcess() {
  count_forks();
  forks_ = forks.load(std::memory_order_relaxed);
}

bool OwnProcess::is_this() const { return forks.load(std::memory_order_relaxed) == forks_; }

std::string process_text(pid_t pid) {
  constexpr std::pair<char, const char*> kReasons[] = {
      {'T', ", which is stopped: by SIGSTOP, Ctrl-Z or a scheduler"},
      {'t', ", which a debugger has stopped"},
      {'D', ", which waits in the system, as for a disk or a network file system"},
      {'Z', ", which has ended"}};
  const auto* reason = std::ranges::find(kReasons, state_of(pid), &std::pair<char, const char*>::first);
  return "process " + std::to_string(pid) + (reason != std::end(kReasons) ? reason->second : "");
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

std::optional<int> core_for(const std::string& affinity, int local_rank) {
  if (affinity.empty()) return std::nullopt;
  const std::vector<int> cores = cores_in(affinity);
  const auto place = static_cast<size_t>(local_rank);
  if (cores.size() > 1 && place >= cores.size()) {
    refuse(affinity, Said::no_core_for_rank, {{"local_rank", local_rank}});
  }
  const int core = cores.size() == 1 ? cores[0] + local_rank : cores[place];
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed)) {
    refuse(affinity, Said::core_not_allowed, {{"local_rank", local_rank}, {"core", core}});
  }
  return core;
}

void pin_this_thread(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) throw InternalError(Said::core_refused, {.others = {{"core", core}}});
}

std::chrono::nanoseconds cpu_time_of_this_thread() { return time_of(CLOCK_THREAD_CPUTIME_ID); }

std::chrono::nanoseconds cpu_time_of(std::thread& thread) {
  clockid_t clock;
  if (!thread.joinable() || pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return {};
  return time_of(clock);
}

}  // namespace hvd
