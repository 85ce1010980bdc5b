#include <algorithm>
#include <deque>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "transport/shared_segments.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/topology.h"

namespace hvd {
namespace {

class TcpBootstrap final : public Bootstrap {
 public:
  explicit TcpBootstrap(std::unique_ptr<Transport> transport) : owned_(std::move(transport)), transport_(*owned_) {}

  const Topology& topology() const override { return transport_.topology(); }
  void barrier() override { gather(""); }

  bool all_give_the_same(uint32_t digest) override {
    const std::string mine = std::to_string(digest);
    const std::vector<std::string> all = gather(mine);
    return std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == mine; });
  }

  // Rank 0 receives all texts and sends them to all ranks.
  std::vector<std::string> gather(const std::string& text) override {
    try {
      std::vector<std::string> texts(static_cast<size_t>(transport_.size()));
      ByteWriter writer;
      if (transport_.rank() != 0) {
        writer.put(text);
        transport_.post(0, writer.bytes);
        const std::vector<std::byte> all = message_from(0);
        ByteReader reader(all, 0);
        for (std::string& each : texts) reader.get(&each);
        reader.end();
        return texts;
      }
      texts[0] = text;
      for (int from = 1; from < transport_.size(); ++from) {
        texts[static_cast<size_t>(from)] = read_message<std::string>(message_from(from), from);
      }
      for (const std::string& each : texts) writer.put(each);
      for (int to = 1; to < transport_.size(); ++to) transport_.post(to, writer.bytes);
      transport_.flush();
      return texts;
    } catch (const InternalError& error) {
      throw StartupError(error.failure().at_start());
    }
  }

  SharedSegments share(size_t bytes) override {
    const Topology& here = topology();
    const std::vector<int>& ranks = here.hosts[host_of(here.rank, here.hosts)];
    auto segments = std::make_shared<std::vector<std::unique_ptr<SharedSegment>>>();
    SharedSegment* own = nullptr;
    std::string name;
    agree([&] {
      segments->push_back(std::make_unique<SharedSegment>(bytes));
      own = segments->back().get();
      name = own->name();
      // All pages at once: no rank should start to train if another cannot.
      if (!commit(own->memory(), bytes)) throw StartupError(Said::no_memory_to_share, {.ranks = {here.rank}});
    });
    const std::vector<std::string> names = gather(name);
    SharedSegments shared{{}, segments};
    agree([&] {
      for (const int rank : ranks) {
        if (rank != here.rank) {
          segments->push_back(std::make_unique<SharedSegment>(names[static_cast<size_t>(rank)], bytes));
        }
        shared.by_local_rank.push_back(rank == here.rank ? own->memory() : segments->back()->memory());
      }
    });
    own->let_go();
    return shared;
  }

  std::unique_ptr<Transport> make_transport() override { return std::move(owned_); }

 private:
  // Returns the next message of a rank, and keeps messages of others for later calls.
  std::vector<std::byte> message_from(int rank) {
    std::deque<std::vector<std::byte>>& kept = heard_[rank];
    while (kept.empty()) {
      if (std::optional<Message> message = transport_.receive()) {
        heard_[message->from].push_back(std::move(message->bytes));
      } else if (transport_.has_left(rank)) {
        throw InternalError(Said::left_before_begin, {.ranks = {rank}, .others = {{"who", transport_.describe(rank)}}});
      } else {
        transport_.wait(std::chrono::milliseconds(100), true);
      }
    }
    std::vector<std::byte> bytes = std::move(kept.front());
    kept.pop_front();
    return bytes;
  }

  // Throws the failure of one rank on all ranks.
  template <typename Action>
  void agree(const Action& action) {
    std::string complaint;
    try {
      action();
    } catch (const Error& error) {
      complaint = std::string(kComplaint) + packed(error.failure());
    }
    const std::vector<std::string> all = gather(complaint);
    for (int rank = 0; rank < transport_.size(); ++rank) {
      const std::string& said = all[static_cast<size_t>(rank)];
      if (said.starts_with(kComplaint)) throw_packed(said.substr(kComplaint.size()), rank);
      if (!said.empty()) refuse_out_of_step(rank);
    }
  }

  // The text of this rank belongs to another call of gather(), so it is not shown.
  [[noreturn]] void refuse_out_of_step(int rank) const {
    throw StartupError(Said::out_of_step, {.ranks = {rank}, .others = {{"who", transport_.describe(rank)}}});
  }

  static constexpr std::string_view kComplaint = "complaint: ";

  std::unique_ptr<Transport> owned_;  // until make_transport()
  Transport& transport_;
  std::map<int, std::deque<std::vector<std::byte>>> heard_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_tcp_bootstrap(std::vector<Socket> listeners, TcpMeeting meeting, const TcpOptions& options,
                                              const Log& log) {
  const Topology topology = topology_of(meeting.rank, ranks_by_host(meeting.hosts));
  return std::make_unique<TcpBootstrap>(
      make_tcp_transport(topology, std::move(listeners), std::move(meeting.peers), meeting.secret, options, log));
}

}  // namespace hvd
