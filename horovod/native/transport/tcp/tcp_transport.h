// Ranks that reach each other by TCP connections, which are opened on first need and kept.
//
// Two ranks have a connection for messages (lane 0), and up to `lanes` for bulk data. Either rank may dial; both send over the
// connection that was there first. Connections to rank 0 are opened at once, so that rank 0 notices every death. All work is
// done in calls of the engine's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/bootstrap.h"
#include "transport/tcp/protocol.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace hvd {

struct TcpPeer {
  std::string name;                    // for errors, as "host2, process 4711"
  std::vector<std::string> endpoints;  // "10.0.0.1:4000"
};

struct TcpOptions {
  int lanes = 1;
  double timeout_seconds = 10;  // a rank that is silent for so long is lost; 0: never
  bool with_checksums = false;
};

// `peers` by rank, including this one. Returns when rank 0 and this rank are connected; throws StartupError if that fails.
std::unique_ptr<Transport> make_tcp_transport(const Topology& topology, std::vector<Socket> listeners,
                                              std::vector<TcpPeer> peers, const Secret& secret, const TcpOptions& options,
                                              const Log& log);

// ---- a job whose ranks know each other's addresses -------------------------------------------------------------------

// The ranks' facts about themselves, which they have exchanged.
struct TcpMeeting {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank: equal for ranks that can share memory
  std::vector<TcpPeer> peers;      // by rank
  Secret secret{};
};

// Collective; returns when rank 0 and this rank are connected. Throws StartupError.
std::unique_ptr<Bootstrap> make_tcp_bootstrap(std::vector<Socket> listeners, TcpMeeting meeting, const TcpOptions& options,
                                              const Log& log);

}  // namespace hvd
