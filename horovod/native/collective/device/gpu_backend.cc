#include "collective/device/gpu_backend.h"

#include "base/error.h"
#include "collective/allreduce.h"
#include "collective/device/nccl_backend.h"

namespace hvd {
namespace {

constexpr uint64_t kLongestText = uint64_t{1} << 20;

std::string named(const DevicePeer& peer) { return "rank " + std::to_string(peer.rank); }

// For example, 22809 is 2.28.9.
std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

// The reason why NCCL cannot join these GPUs; empty if it can.
std::string why_not(const std::vector<DevicePeer>& peers) {
  for (const DevicePeer& peer : peers) {
    if (peer.nccl_version == 0) return named(peer) + " has no NCCL: " + peer.why_no_nccl;
  }
  for (const DevicePeer& peer : peers) {
    const DevicePeer& first = peers.front();
    if (peer.nccl_version != first.nccl_version) {
      return named(first) + " has NCCL " + version_text(first.nccl_version) + ", " + named(peer) + " has " +
             version_text(peer.nccl_version);
    }
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    for (size_t j = i + 1; j < peers.size(); ++j) {
      if (peers[i].gpu != peers[j].gpu) continue;
      return named(peers[i]) + " and " + named(peers[j]) + " share a GPU, " + peers[i].gpu +
             ", and NCCL serves one rank of each";
    }
  }
  return "";
}

// Without peer access NCCL goes through host memory itself, so it is no better.
std::string why_not_better(const std::vector<DevicePeer>& peers) {
  for (const DevicePeer& peer : peers) {
    if (!peer.out_of_reach.empty()) return named(peer) + " has no peer access to " + peer.out_of_reach;
  }
  return "";
}

// The backend of a process set with one rank: nothing is sent.
class LoneGpuBackend final : public GpuBackend {
 public:
  using GpuBackend::GpuBackend;

  void allreduce(std::span<const BucketTensor> tensors, const BucketReduction& reduction, const Route&) override {
    allreduce_alone(*workspace_, tensors, reduction);
  }
  void adasum(std::span<const BucketTensor> tensors, const BucketReduction& reduction) override {
    allreduce_alone(*workspace_, tensors, reduction);
  }
  void average_integers(std::span<const BucketTensor> tensors, const BucketReduction& reduction,
                        const std::function<void(const Plan&)>& on_plan) override {
    on_plan(plan_allreduce(facts(tensors, reduction), rules()));
    allreduce_alone(*workspace_, tensors, reduction);
  }
  void reducescatter(std::vector<std::vector<BucketTensor>> by_rank, const BucketReduction& reduction, const Route&) override {
    allreduce_alone(*workspace_, by_rank.front(), reduction);
  }
  void broadcast(int, void*, size_t) override {}
  void move(const Movement& movement) override {
    copy(movement.destination + movement.received.front().offset, movement.source + movement.sent.front().offset,
         movement.sent.front().bytes);
  }
};

}  // namespace

DeviceAgreement agree_on_transport(const std::vector<DevicePeer>& peers) {
  const DevicePeer& first = peers.front();
  for (const DevicePeer& peer : peers) {
    if (peer.transport == first.transport) continue;
    return {
        false,
        "",
        {Said::gpu_transports_differ,
         {.others = {{"first", first.transport}, {"one", named(first)}, {"second", peer.transport}, {"other", named(peer)}}}}};
  }
  if (first.transport == "host") return {false, "HOROVOD_GPU_TRANSPORT asks for it", {}};
  std::string why = why_not(peers);
  if (first.transport == "nccl") {
    if (why.empty()) return {true, "", {}};
    return {false, why, {Said::nccl_cannot_be, {.others = {{"why", why}}}}};
  }
  if (why.empty()) why = why_not_better(peers);
  return {why.empty(), why, {}};
}

std::vector<std::string> exchange_texts(const CollectiveContext& context, const std::string& own) {
  const RankGroup& group = context.group;
  const auto size = static_cast<size_t>(group.size());
  const uint64_t own_bytes = own.size();
  std::vector<uint64_t> bytes(size, own_bytes);
  std::vector<std::string> texts(size, own);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (size_t r = 0; r < size; ++r) {
    if (static_cast<int>(r) == group.rank()) continue;
    outgoing.push_back({static_cast<int>(r), &own_bytes, sizeof own_bytes});
    incoming.push_back({static_cast<int>(r), &bytes[r], sizeof bytes[r]});
  }
  group.exchange(outgoing, incoming);
  for (Outgoing& out : outgoing) out = {out.to, own.data(), own.size()};
  for (Incoming& in : incoming) {
    std::string& text = texts[static_cast<size_t>(in.from)];
    const uint64_t length = bytes[static_cast<size_t>(in.from)];
    if (length > kLongestText) {
      throw InternalError(Said::gpu_text_too_long,
                          {.ranks = {group.ranks()[static_cast<size_t>(in.from)]}, .others = {{"bytes", length}}});
    }
    text.resize(length);
    in = {in.from, text.data(), text.size()};
  }
  group.exchange(outgoing, incoming);
  return texts;
}

std::vector<DevicePeer> exchange_peers(DeviceLibrary& library, Device& device, const CollectiveContext& context,
                                       const std::string& gpu_transport) {
  const int version = library.nccl_version();
  const std::string why_no_nccl = version == 0 ? library.why_no_nccl() : "";
  const std::vector<std::byte> own = to_bytes(DevicePeer{0, device.identity(), version, why_no_nccl, gpu_transport, ""});
  std::vector<DevicePeer> peers;
  for (const std::string& text : exchange_texts(context, {reinterpret_cast<const char*>(own.data()), own.size()})) {
    const int rank = context.group.ranks()[peers.size()];
    peers.push_back(read_message<DevicePeer>(std::as_bytes(std::span(text)), rank));
    peers.back().rank = rank;
  }
  std::string out_of_reach;
  for (const DevicePeer& peer : peers) {
    if (peer.gpu != device.identity() && !device.reaches(peer.gpu)) out_of_reach = peer.gpu;
  }
  const std::vector<std::string> all_out_of_reach = exchange_texts(context, out_of_reach);
  for (size_t r = 0; r < peers.size(); ++r) peers[r].out_of_reach = all_out_of_reach[r];
  return peers;
}

PlanFacts GpuBackend::facts(std::span<const BucketTensor> tensors, const BucketReduction& reduction) const {
  PlanFacts facts = facts_of(context_, tensors, reduction);
  facts.on_gpu = true;
  facts.has_nccl = agreement_.has_nccl;
  facts.why_no_nccl = agreement_.why;
  return facts;
}

std::unique_ptr<GpuBackend> open_gpu_backend(DeviceLibrary& library, std::shared_ptr<DeviceWorkspace> workspace,
                                             CollectiveContext& context, const PlanRules& rules,
                                             const std::string& gpu_transport) {
  DeviceAgreement agreement = agree_on_transport(exchange_peers(library, workspace->device(), context, gpu_transport));
  if (agreement.error.is_any()) throw InternalError(agreement.error);
  const bool has_nccl = agreement.has_nccl;
  GpuBackend::Common common{std::move(workspace), context, rules, std::move(agreement)};
  if (context.group.size() == 1) return std::make_unique<LoneGpuBackend>(std::move(common));
  if (has_nccl) return make_nccl_backend(std::move(common), library);
  return make_host_backend(std::move(common));
}

}  // namespace hvd
