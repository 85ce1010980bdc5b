// The ranks of a transport that a collective runs over, numbered 0..size()-1.
//
// Groups may overlap without deadlock: all operations of a job have one order, the order of the coordinator's responses, in
// which every rank carries out its operations.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace hvd {

class RankGroup {
 public:
  // `ranks` ascend and include the transport's rank. The transport must outlive the group.
  RankGroup(Transport& transport, std::vector<int> ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // in the numbering of the job
  const char* transport_name() const { return transport_.name(); }
  // Null unless the group has all ranks, because all ranks of a window must advance its counters.
  Window* window() const { return is_all_ ? transport_.window() : nullptr; }
  Window* host_window() const { return is_all_ ? transport_.host_window() : nullptr; }
  // The group's ranks on each host that has some, in order.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }

  // As in Transport, but ranks are numbered as in the group.
  Ticket start(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
               const std::shared_ptr<void>& keep_alive = {}) const;
  void progress() const { transport_.progress(); }
  void attend() const { transport_.attend(); }
  void finish(Ticket ticket) const { transport_.finish(ticket); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const;

 private:
  // Transfers with ranks as the job numbers them.
  template <typename Transfer>
  std::vector<Transfer> in_job(std::span<const Transfer> transfers, int Transfer::* rank) const;

  // Constant after construction.
  Transport& transport_;
  const std::vector<int> ranks_;
  const bool is_all_;
  int rank_ = 0;
  std::vector<std::vector<int>> hosts_;
};

}  // namespace hvd
