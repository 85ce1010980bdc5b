// Some ranks of a transport, numbered 0..size()-1 among themselves: whom a collective runs over.
//
// Groups may overlap. What keeps them from waiting for each other in a circle is that all operations of a job have one
// order, that of the coordinator's responses, and every rank carries out its own in that order.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace hvd {

class RankGroup {
 public:
  // `ranks` ascend and include the transport's own. The transport outlives the group.
  RankGroup(Transport& transport, std::vector<int> ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // by their numbers in the job
  const char* transport_name() const { return transport_.name(); }
  // Null unless the group is all ranks: a window's counters are advanced by everybody.
  Window* window() const { return is_all_ ? transport_.window() : nullptr; }
  Window* host_window() const { return is_all_ ? transport_.host_window() : nullptr; }
  // Its ranks on each host that it has ranks on, in order.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }

  // As of Transport, between ranks as the group numbers them.
  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive = {}) const;
  void progress() const { transport_.progress(); }
  void attend() const { transport_.attend(); }
  void finish(Ticket ticket) const { transport_.finish(ticket); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const;

 private:
  std::vector<Outgoing> in_job(std::span<const Outgoing> outgoing) const;
  std::vector<Incoming> in_job(std::span<const Incoming> incoming) const;

  // Constant after construction.
  Transport& transport_;
  const std::vector<int> ranks_;
  const bool is_all_;
  int rank_ = 0;
  std::vector<std::vector<int>> hosts_;
};

}  // namespace hvd
