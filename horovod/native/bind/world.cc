#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "bind/bind.h"
#include "transport/local.h"
#include "transport/tcp/tcp_transport.h"

namespace nb = nanobind;

namespace hvd {
namespace {

std::vector<std::unique_ptr<World>> local_worlds(int size, bool shares_memory, const std::vector<int>& hosts) {
  if (!hosts.empty() && static_cast<int>(hosts.size()) != size) {
    throw InvalidArgument(Said::hosts_do_not_fit, {.others = {{"entries", hosts.size()}, {"size", size}}});
  }
  int known = 0;
  for (const int host : hosts) {
    if (host < 0 || host > known) throw InvalidArgument(Said::hosts_not_in_order);
    known = std::max(known, host + 1);
  }
  if (size < 1) throw InvalidArgument(Said::world_is_empty, {.others = {{"size", size}}});
  std::vector<std::unique_ptr<World>> worlds;
  for (auto& transport : make_local_transports(size, shares_memory, hosts)) {
    worlds.push_back(std::make_unique<World>(OpenedTransport{std::move(transport), "", false}));
  }
  return worlds;
}

template <auto kMember>
auto topology(const World& world) {
  return world.opened.transport->topology().*kMember;
}

// The sockets on which a rank listens before it knows the other ranks.
struct TcpListener {
  TcpListener(const std::vector<std::string>& addresses, int first_port, int last_port) {
    if (first_port < 0 || first_port > last_port || last_port > 65535) {
      throw InvalidArgument(Said::ports_no_range, {.others = {{"first", first_port}, {"last", last_port}}});
    }
    for (const std::string& address : addresses) sockets.push_back(listen_at(address, {first_port, last_port}));
  }
  TcpListener(const TcpListener&) = delete;
  std::vector<Socket> sockets;
};

std::unique_ptr<World> open_world_over_tcp(const Settings& settings, TcpListener& listener, int rank,
                                           const std::vector<std::string>& hosts, const std::vector<std::string>& names,
                                           const std::vector<std::vector<std::string>>& endpoints, const nb::bytes& secret) {
  TcpMeeting meeting{rank, hosts, {}, {}};
  if (rank < 0 || rank >= static_cast<int>(hosts.size()) || names.size() != hosts.size() || endpoints.size() != hosts.size()) {
    throw InvalidArgument(Said::lists_not_by_rank, {.others = {{"rank", rank}}});
  }
  if (secret.size() != meeting.secret.size()) throw InvalidArgument(Said::secret_wrong);
  std::memcpy(meeting.secret.data(), secret.data(), secret.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (endpoints[r].empty()) throw InvalidArgument(Said::listens_nowhere, {.ranks = {static_cast<int>(r)}});
    meeting.peers.push_back({names[r], endpoints[r]});
  }
  if (settings.tcp_timeout_seconds != 0 && settings.tcp_timeout_seconds < 2) {
    throw InvalidArgument(Said::tcp_timeout_too_short, {.others = {{"setting", "HOROVOD_TCP_TIMEOUT_SECONDS"},
                                                                   {"value", std::to_string(settings.tcp_timeout_seconds)}}});
  }
  const nb::gil_scoped_release released;
  const TcpOptions options{static_cast<int>(settings.tcp_connections), settings.tcp_timeout_seconds, settings.tcp_checksums};
  const std::unique_ptr<Bootstrap> job =
      make_tcp_bootstrap(std::exchange(listener.sockets, {}), std::move(meeting), options, Log(settings, rank));
  return std::make_unique<World>(OpenedTransport{open_transport_of(*job, settings), "", false});
}

}  // namespace

void register_world(nb::module_& m) {
  using namespace nb::literals;
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<World>(m, "World")
      .def_prop_ro("rank", topology<&Topology::rank>)
      .def_prop_ro("size", topology<&Topology::size>)
      .def_prop_ro("local_rank", topology<&Topology::local_rank>)
      .def_prop_ro("local_size", topology<&Topology::local_size>)
      .def_prop_ro("cross_rank", topology<&Topology::cross_rank>)
      .def_prop_ro("cross_size", topology<&Topology::cross_size>)
      .def_prop_ro("homogeneous", topology<&Topology::homogeneous>)
      .def("abandon",
           [](World& world) {
             if (world.process.is_this()) world.opened.transport->abandon();
           })
      .def("leave_to_parent", [](World& world) { world.opened.transport->leave_to_parent(); })
      .def_prop_ro("links", [](const World& world) { return world.opened.transport->links(); })
      .def_prop_ro("transport", [](const World& world) { return world.opened.transport->name(); })
      .def_prop_ro("has_connections", [](const World& world) { return world.opened.transport->has_connections(); })
      .def_prop_ro("mpi_library", [](const World& world) { return world.opened.mpi_library; })
      .def_prop_ro("mpi_threads_multiple", [](const World& world) { return world.opened.mpi_threads_multiple; });
  m.def(
      "open_world",
      [](const Settings& settings, const std::string& libmpi, int launched_size, const std::string& evidence,
         const std::vector<int>& ranks) {
        return std::make_unique<World>(open_transport(settings, libmpi, {launched_size, evidence}, ranks));
      },
      "settings"_a, "libmpi"_a, "launched_size"_a, "evidence"_a, "ranks"_a = std::vector<int>(), released());
  m.def("close_mpi", close_mpi, released());
  m.def("close_mpi_at_exit", close_mpi_at_exit);
  m.def("local_worlds", local_worlds, "size"_a, "shares_memory"_a = true, "hosts"_a = std::vector<int>());
}

void register_tcp(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<TcpListener>(m, "TcpListener")
      .def(nb::init<const std::vector<std::string>&, int, int>(), "addresses"_a, "first_port"_a = 0, "last_port"_a = 0)
      .def_prop_ro("endpoints", [](const TcpListener& listener) {
        std::vector<std::string> endpoints;
        for (const Socket& socket : listener.sockets) endpoints.push_back(endpoint_of(socket));
        return endpoints;
      });
  m.def("open_world_over_tcp", open_world_over_tcp, "settings"_a, "listener"_a, "rank"_a, "hosts"_a, "names"_a, "endpoints"_a,
        "secret"_a);

  struct MpiMeeting {
    MpiJob& job;
  };
  nb::class_<MpiMeeting>(m, "MpiMeeting")
      .def(
          "__init__",
          [](MpiMeeting* self, const Settings& settings, const std::string& libmpi, int launched_size,
             const std::string& evidence, const std::vector<int>& ranks) {
            const nb::gil_scoped_release release;
            new (self) MpiMeeting{join_mpi(settings, libmpi, {launched_size, evidence}, ranks).job};
          },
          "settings"_a, "libmpi"_a, "launched_size"_a, "evidence"_a, "ranks"_a = std::vector<int>())
      .def_prop_ro("rank", [](const MpiMeeting& self) { return self.job.topology().rank; })
      .def_prop_ro("size", [](const MpiMeeting& self) { return self.job.topology().size; })
      .def(
          "gather",
          [](MpiMeeting& self, const nb::bytes& value) {
            const std::string text(static_cast<const char*>(value.data()), value.size());
            std::vector<std::string> all;
            {
              const nb::gil_scoped_release release;
              all = self.job.gather(text);
            }
            nb::list values;
            for (const std::string& one : all) values.append(nb::bytes(one.data(), one.size()));
            return values;
          },
          "value"_a, nb::sig("def gather(self, value: bytes) -> list[bytes]"));
}

}  // namespace hvd
