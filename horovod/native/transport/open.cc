#include "transport/open.h"

#include "base/error.h"
#include "base/process.h"
#include "transport/host_window.h"
#include "transport/self.h"
#include "transport/shared_memory.h"
#include "transport/shared_window.h"

namespace hvd {
namespace {

std::unique_ptr<Transport> make_shared_memory_transport(Bootstrap& job) {
  const Topology& topology = job.topology();
  SharedSegments segments = job.share(SharedMemoryTransport::segment_bytes(topology.size));
  job.barrier();  // nobody still uses the segments of an earlier initialisation
  SharedMemoryTransport::prepare(segments.by_local_rank[static_cast<size_t>(topology.rank)], topology.size);
  job.barrier();
  return std::make_unique<SharedMemoryTransport>("shared_memory", topology, std::move(segments.by_local_rank),
                                                 std::move(segments.keep_alive));
}

// Between hosts messages carry the bytes; inside each, ranks share memory besides.
std::unique_ptr<Transport> make_transport_between_hosts(Bootstrap& job, bool with_host_windows) {
  std::unique_ptr<Transport> transport = job.make_transport();
  const Topology& topology = job.topology();
  if (!with_host_windows || static_cast<int>(topology.hosts.size()) == topology.size) return transport;
  SharedSegments segments = job.share(host_window_bytes());
  job.barrier();  // as above
  SharedWindow::prepare(segments.by_local_rank[static_cast<size_t>(topology.local_rank)]);
  job.barrier();
  add_host_window(*transport, std::move(segments.by_local_rank), std::move(segments.keep_alive));
  return transport;
}

// Ranks that send each other different messages would wait for ever; and what rank 0 decides for all by its own settings is
// not what was asked for on another rank.
void check_agreement(Bootstrap& job, const Settings& settings) {
  const std::string mine = "core=" HOROVOD_VERSION " (" + std::string(build_digest()) + ")\n" + settings.of_job();
  uint32_t digest = 2166136261;  // FNV-1a's
  for (const char c : mine) digest = (digest ^ static_cast<unsigned char>(c)) * 16777619;
  if (job.all_give_the_same(digest)) return;
  // One gather, with a text of lines: a rank of another build takes part in it too.
  const std::vector<std::string> texts = job.gather(mine + "host=" + host_name() + "\n");
  if (const std::string builds = disagreement_of_builds(texts); !builds.empty()) {
    throw StartupError("the ranks run different builds of horovod, and would misread each other's data: " + builds +
                       ". Install the same one on every host, from the same sources");
  }
  throw StartupError("the ranks have different settings: " + disagreement_of_settings(texts) +
                     ". Give all ranks the same, as horovodrun does");
}

}  // namespace

std::unique_ptr<Transport> open_transport_of(Bootstrap& job, const Settings& settings) {
  check_agreement(job, settings);
  const Topology& topology = job.topology();
  const bool one_host = topology.local_size == topology.size;
  if (settings.transport == "shared_memory" && !one_host) {
    throw StartupError("HOROVOD_TRANSPORT=shared_memory needs all ranks on one host, but " + std::to_string(topology.size) +
                       " ranks are spread over several; use auto, mpi or tcp");
  }
  const bool may_share_memory = settings.transport == "auto" || settings.transport == "shared_memory";
  std::unique_ptr<Transport> transport =
      one_host && may_share_memory ? make_shared_memory_transport(job) : make_transport_between_hosts(job, may_share_memory);
  if (!settings.deterministic) transport->know_links(measure_links(*transport));
  return transport;
}

MpiLibrary join_mpi(const Settings& settings, const std::string& prefix, const Launch& launch, const std::vector<int>& ranks) {
  MpiLibrary library = open_mpi_library(prefix, launch.evidence, {ranks, !settings.mpi_threads_disable});
  if (launch.size != 1 && library.job().topology().size == 1 && ranks.empty()) {
    const std::string several = launch.size == 0 ? "several" : std::to_string(launch.size);
    throw StartupError(
        "the launcher says this is one of " + several + " ranks (" + launch.evidence +
        "), but the MPI library this process loaded, " + library.description() +
        ", found itself alone. The mpirun that started it belongs to another MPI" + launcher_path_hint() +
        ". Use horovodrun, or the mpirun of the environment horovod is installed in; or unset the variables, for a "
        "process that shall work alone");
  }
  return library;
}

OpenedTransport open_transport(const Settings& settings, const std::string& prefix, const Launch& launch,
                               const std::vector<int>& ranks) {
  if (launch.evidence.empty() || (launch.size == 1 && !mpi_library_is_installed())) {
    if (!ranks.empty() && ranks != std::vector<int>{0}) {
      throw StartupError(
          "init(comm=...) names other ranks than 0, but no launcher started this process; start it with "
          "horovodrun or mpirun");
    }
    return {std::make_unique<SelfTransport>(), "", false};
  }
  const MpiLibrary library = join_mpi(settings, prefix, launch, ranks);
  MpiJob& job = library.job();
  return {open_transport_of(job, settings), library.description(), job.threads_multiple()};
}

}  // namespace hvd
