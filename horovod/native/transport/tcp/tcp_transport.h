// Ranks that reach each other by TCP: connections of our own, opened on first need and kept.
//
// Between two ranks there is a connection for messages (lane 0), and up to `lanes` for bulk data. Either of the two may dial;
// both send over the one that was there first. Connections to rank 0 are opened at once, so that every death is noticed. All
// is done in calls of the engine's thread.
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
  std::string name;                    // as "host2, process 4711", for errors
  std::vector<std::string> endpoints;  // "10.0.0.1:4000"
};

struct TcpOptions {
  int lanes = 1;
  double timeout_seconds = 10;  // a rank that is silent for so long is lost; 0: never
  bool with_checksums = false;
};

// `peers` by rank, this one's included. Returns when rank 0 and this one are connected; throws StartupError if that cannot be.
std::unique_ptr<Transport> make_tcp_transport(const Topology& topology, std::vector<Socket> listeners,
                                              std::vector<TcpPeer> peers, const Secret& secret, const TcpOptions& options,
                                              const Log& log);

// ---- a job whose ranks know each other's addresses, and do all else over TCP ----------------------------------------

// What the ranks have told each other of themselves.
struct TcpMeeting {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank: the same for ranks that can share memory
  std::vector<TcpPeer> peers;      // by rank
  Secret secret{};
};

// Collective; returns when rank 0 and this one are connected. Throws StartupError.
std::unique_ptr<Bootstrap> make_tcp_bootstrap(std::vector<Socket> listeners, TcpMeeting meeting, const TcpOptions& options,
                                              const Log& log);

}  // namespace hvd
