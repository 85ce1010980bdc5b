#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hashes.h"
#include "bind/bind.h"
#include "bind/world.h"
#include "transport/tcp/tcp_transport.h"

namespace nb = nanobind;

namespace hvd {
namespace {

std::span<const std::byte> bytes_of(const nb::bytes& text) { return {static_cast<const std::byte*>(text.data()), text.size()}; }
nb::bytes to_python(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

// Where a rank listens before it knows the others.
struct TcpListener {
  TcpListener(const std::vector<std::string>& addresses, int first_port, int last_port) {
    if (first_port < 0 || first_port > last_port || last_port > 65535) {
      throw InvalidArgument("ports " + std::to_string(first_port) + "-" + std::to_string(last_port) + " are no range");
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
    throw InvalidArgument("hosts, names and endpoints are lists by rank, " + std::to_string(rank) + " one of them");
  }
  if (secret.size() != meeting.secret.size()) throw InvalidArgument("a secret has 32 bytes");
  std::memcpy(meeting.secret.data(), secret.data(), secret.size());
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (endpoints[r].empty()) throw InvalidArgument("rank " + std::to_string(r) + " listens nowhere");
    meeting.peers.push_back({names[r], endpoints[r]});
  }
  if (settings.tcp_timeout_seconds != 0 && settings.tcp_timeout_seconds < 2) {
    throw InvalidArgument(
        "HOROVOD_TCP_TIMEOUT_SECONDS: ranks say twice a second that they live; give 2 or more, or 0 for never");
  }
  const nb::gil_scoped_release released;
  const TcpOptions options{static_cast<int>(settings.tcp_connections), settings.tcp_timeout_seconds, settings.tcp_checksums};
  const std::unique_ptr<Bootstrap> job =
      make_tcp_bootstrap(std::exchange(listener.sockets, {}), std::move(meeting), options, Log(settings, rank));
  return std::make_unique<World>(OpenedTransport{open_transport_of(*job, settings), "", false});
}

}  // namespace

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
  m.def("sha256", [](const nb::bytes& data) { return to_python(sha256({bytes_of(data)})); }, "data"_a);
  m.def(
      "hmac_sha256",
      [](const nb::bytes& key, const nb::bytes& data) { return to_python(hmac_sha256(bytes_of(key), {bytes_of(data)})); },
      "key"_a, "data"_a);
  m.def("crc32c", [](const nb::bytes& data) { return crc32c(bytes_of(data)); }, "data"_a);
  m.def("crc32c_by_table", [](const nb::bytes& data) { return crc32c_by_table(bytes_of(data)); }, "data"_a);

  struct MpiMeeting {
    MpiJob& job;
  };
  nb::class_<MpiMeeting>(m, "MpiMeeting")
      .def(
          "__init__",
          [](MpiMeeting* self, const Settings& settings, const std::string& prefix, int launched_size,
             const std::string& evidence, const std::vector<int>& ranks) {
            const nb::gil_scoped_release release;
            new (self) MpiMeeting{join_mpi(settings, prefix, {launched_size, evidence}, ranks).job()};
          },
          "settings"_a, "prefix"_a, "launched_size"_a, "evidence"_a, "ranks"_a = std::vector<int>())
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
