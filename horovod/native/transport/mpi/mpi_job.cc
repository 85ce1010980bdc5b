// The process's membership in MPI jobs: of all ranks, or of the ranks in hvd.init(comm=...).
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap.h"
#include "transport/mpi/mpi_transport.h"
#include "transport/shared_segments.h"

namespace hvd {
namespace {

Topology topology_of(MPI_Comm world, MPI_Comm host) {
  Topology t;
  MPI_Comm_rank(world, &t.rank);
  MPI_Comm_size(world, &t.size);
  MPI_Comm_rank(host, &t.local_rank);
  MPI_Comm_size(host, &t.local_size);
  MPI_Comm cross;
  MPI_Comm_split(world, t.local_rank, t.rank, &cross);
  MPI_Comm_rank(cross, &t.cross_rank);
  MPI_Comm_size(cross, &t.cross_size);
  MPI_Comm_free(&cross);
  int extremes[2] = {t.local_size, -t.local_size};
  MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_INT, MPI_MAX, world);
  t.homogeneous = extremes[0] == -extremes[1];
  // The first rank identifies a host.
  int first = t.rank;
  MPI_Bcast(&first, 1, MPI_INT, 0, host);
  std::vector<int> first_on_host(static_cast<size_t>(t.size));
  MPI_Allgather(&first, 1, MPI_INT, first_on_host.data(), 1, MPI_INT, world);
  std::map<int, std::vector<int>> hosts;
  for (int rank = 0; rank < t.size; ++rank) hosts[first_on_host[static_cast<size_t>(rank)]].push_back(rank);
  for (auto& [_, ranks] : hosts) t.hosts.push_back(std::move(ranks));
  return t;
}

// Whether this library must call MPI_Finalize. Kept outside the job, whose constructor can fail after MPI_Init.
bool& initialized_here() {
  static bool here = false;
  return here;
}

// Returns the thread level in force.
int initialize(bool threads_multiple) {
  int provided = MPI_THREAD_SINGLE;
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) {
    MPI_Query_thread(&provided);
  } else {
    // Open MPI's UCX component for windows prints errors on stderr if it finds no device. Our windows are plain shared memory
    // and do not need it. A variable that the user has set stays.
    setenv("OMPI_MCA_osc", "^ucx", 0);
    const int wanted = threads_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
    check(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init_thread");
    initialized_here() = true;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    throw StartupError(Said::mpi_without_threads);
  }
  return provided;
}

std::string listed(const std::vector<int>& ranks) { return "[" + joined(ranks, ", ", number_text) + "]"; }

// Returns a private communicator of the ranks, so that no user message can be mistaken for ours.
MPI_Comm communicator_of(const std::vector<int>& ranks) {
  MPI_Comm chosen = MPI_COMM_NULL;
  if (ranks.empty()) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &chosen), "MPI_Comm_dup");
    return chosen;
  }
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bool is_member = false;
  for (const int one : ranks) {
    if (one < 0 || one >= size || std::count(ranks.begin(), ranks.end(), one) > 1) {
      throw StartupError(Said::comm_wrong, {.others = {{"value", listed(ranks)}, {"size", size}, {"last", size - 1}}});
    }
    is_member |= one == rank;
  }
  if (!is_member) {
    throw StartupError(Said::comm_without_self, {.ranks = {rank}, .others = {{"value", listed(ranks)}}});
  }
  MPI_Group world, group;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group);
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, group, ranks.front(), &chosen);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check(code, "MPI_Comm_create_group");
  return chosen;
}

class Job final : public MpiJob {
 public:
  Job(const std::vector<int>& ranks, bool threads_multiple) {
    threads_multiple_ = initialize(threads_multiple) == MPI_THREAD_MULTIPLE && threads_multiple;
    world_ = communicator_of(ranks);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_), "MPI_Comm_split_type");
    MPI_Comm_set_errhandler(host_, MPI_ERRORS_RETURN);
    topology_ = topology_of(world_, host_);
  }

  const Topology& topology() const override { return topology_; }
  bool threads_multiple() const override { return threads_multiple_; }
  void barrier() override { check(MPI_Barrier(world_), "MPI_Barrier"); }
  bool all_give_the_same(uint32_t digest) override {
    uint32_t extremes[2] = {digest, ~digest};
    check(MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_UINT32_T, MPI_MAX, world_), "MPI_Allreduce");
    return extremes[0] == ~extremes[1];
  }
  std::vector<std::string> gather(const std::string& text) override {
    const auto size = static_cast<size_t>(topology_.size);
    const int length = static_cast<int>(text.size());
    std::vector<int> lengths(size), starts(size, 0);
    check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, world_), "MPI_Allgather");
    std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
    std::string all(static_cast<size_t>(starts.back() + lengths.back()), '\0');
    check(MPI_Allgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, world_),
          "MPI_Allgatherv");
    std::vector<std::string> texts;
    for (size_t r = 0; r < size; ++r) {
      texts.push_back(all.substr(static_cast<size_t>(starts[r]), static_cast<size_t>(lengths[r])));
    }
    return texts;
  }
  std::unique_ptr<Transport> make_transport() override {
    if (!threads_multiple_ && !initialized_here()) {
      throw StartupError(Said::mpi_without_multiple);
    }
    return make_mpi_transport(world_, topology_, generation_++);
  }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, all.find_first_of("\n,"));
  }

  SharedSegments share(size_t bytes) override {
    auto position = windows_.find(bytes);
    if (position == windows_.end()) position = windows_.emplace(bytes, make_window(bytes)).first;
    SharedSegments segments;  // live until MPI is finalised
    for (int rank = 0; rank < topology_.local_size; ++rank) {
      MPI_Aint length = 0;
      int unit = 0;
      void* base = nullptr;
      check(MPI_Win_shared_query(position->second, rank, &length, &unit, &base), "MPI_Win_shared_query");
      segments.by_local_rank.push_back(static_cast<std::byte*>(base));
    }
    return segments;
  }

  void leave() {
    for (auto& [bytes, window] : windows_) MPI_Win_free(&window);
    MPI_Comm_free(&host_);
    MPI_Comm_free(&world_);
  }

 private:
  // If one rank lacks room, all fail: in MPI_Win_allocate_shared the others would wait for the rank that makes the file, and no
  // rank should train if another cannot.
  MPI_Win make_window(size_t bytes) {
    const int ranks = topology_.local_size;
    const bool asks = topology_.local_rank == 0 && ranks > 1;  // for a single rank MPI uses private memory
    throw_if_any(asks ? why_no_room(bytes, ranks) : Failure());
    MPI_Win window = MPI_WIN_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");  // each segment is page-aligned, on its owner's memory node
    void* mine = nullptr;
    const int code = MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, host_, &mine, &window);
    MPI_Info_free(&info);
    Failure complaint;
    if (code != MPI_SUCCESS) {
      complaint = why_no_room(bytes, ranks);
      if (!complaint.is_any()) complaint = {Said::no_window, {.others = {{"why", described(code)}}}};
    } else if (!commit(static_cast<std::byte*>(mine), bytes)) {
      complaint = no_room_left(bytes, ranks);
    }
    try {
      throw_if_any(complaint);
    } catch (...) {
      if (window != MPI_WIN_NULL) MPI_Win_free(&window);  // collective over this host, whose ranks all have a window or none
      throw;
    }
    return window;
  }

  // Collective: the first complaint is thrown on all ranks.
  void throw_if_any(const Failure& complaint) {
    const std::vector<std::string> all = gather(complaint.is_any() ? packed(complaint) : "");
    for (int rank = 0; rank < topology_.size; ++rank) {
      if (const std::string& each = all[static_cast<size_t>(rank)]; !each.empty()) throw_packed(each, rank);
    }
  }

  // Constant after construction.
  bool threads_multiple_ = false;
  MPI_Comm world_ = MPI_COMM_NULL;
  MPI_Comm host_ = MPI_COMM_NULL;
  Topology topology_;
  int generation_ = 0;
  // Grows when a transport asks for memory of another size.
  std::map<size_t, MPI_Win> windows_;
};

std::map<std::vector<int>, std::unique_ptr<Job>>& jobs() {
  static std::map<std::vector<int>, std::unique_ptr<Job>> all;
  return all;
}

}  // namespace
}  // namespace hvd

extern "C" __attribute__((visibility("default"))) hvd::MpiJob* hvd_open_mpi_job(const std::vector<int>& ranks,
                                                                                bool threads_multiple, std::string* error) {
  try {
    std::unique_ptr<hvd::Job>& job = hvd::jobs()[ranks];
    if (!job) job = std::make_unique<hvd::Job>(ranks, threads_multiple);
    return job.get();
  } catch (const std::exception& e) {
    *error = e.what();
    return nullptr;
  }
}

extern "C" __attribute__((visibility("default"))) void hvd_finalize_mpi() {
  if (!hvd::initialized_here()) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  for (auto& [ranks, job] : hvd::jobs()) {
    if (job) job->leave();
  }
  hvd::jobs().clear();
  MPI_Finalize();
}
