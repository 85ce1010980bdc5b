// A job whose ranks know each other's addresses, and do all else over TCP.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/bootstrap.h"
#include "transport/tcp/tcp_transport.h"

namespace hvd {

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
