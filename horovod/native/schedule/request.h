// A rank's request under one name, and the messages about it: ranks send Announcement[] to the coordinator, which sends
// Response[]. `set` is the serial number of a process set, which is never used again.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "collective/reduce.h"
#include "schedule/operation_list.h"

namespace hvd {

using Shape = std::vector<int64_t>;
int64_t element_count(const Shape& shape);
std::string to_text(const Shape& shape);  // "(3, 4)", "(3,)", "()"

struct Request {
  Operation operation = Operation::kAllreduce;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0, postscale = 1.0;
  int32_t root = -1;        // of an operation that has one: its number in the job
  bool follows = false;     // of an operation that takes several, not the first: it comes when ranks have the last one's result
  bool on_gpu = false;      // where the tensors are
  std::string name, codec;  // the codec's: "" or Codec::name()
  std::vector<DType> dtypes;  // of each tensor; several are one group
  std::vector<Shape> shapes;
  std::vector<int64_t> set;  // to add a process set: its ranks; to remove one: its id
  std::string text;          // to tune: what rank 0 has decided (see Settings::tune); of missing gradients: their names

  bool operator==(const Request&) const = default;
  int64_t bytes() const, bytes_of(size_t tensor) const;  // of all tensors, as this rank has them, and of one
  int64_t row_bytes_of(size_t tensor) const;             // of one index of the first dimension
  bool has_one_dtype() const;
};

struct Announcement {
  uint32_t set = 0;
  bool is_leaving = false;    // the rank shuts down
  uint32_t answers = 0;       // `requests` are those of as many ids that the coordinator had forgotten
  std::vector<uint32_t> ids;  // requests that all ranks have agreed on before, see response_cache.h
  std::vector<Request> requests;
  std::vector<uint32_t> places;   // where order counts: of each of `requests`, among all that is announced here
  bool is_begun = false;          // where order counts: the rank knows all `ids`, and carries them out before a response comes
  std::vector<uint32_t> batches;  // of what is begun: the numbers in `ids` at which what goes together ends
  std::string blocked_on;  // if not empty, all that it says: a caller waits for this operation, and does nothing meanwhile
  bool may_yield = false;  // that caller may be let go on without it, see deadlocks.h
  uint32_t pass = 0;       // how many backward passes the rank had begun when it asked for the last of these
  std::string no_pass_at;  // if not empty, all that it says: the rank is in no backward pass, for that question
};

// One request in a response: by id if the ranks know it, else by name, perhaps with the id it gets from now on.
struct Item {
  uint32_t id = 0;                 // known already; 0 = none
  std::string name;                // if there is no id
  uint32_t assigned_id = 0;        // remember it under this; 0 = do not
  std::vector<int64_t> rows;       // allgather: first dimensions, tensor by tensor and in that by rank; join: the last rank
  std::optional<Request> request;  // some rank has joined, and takes part in this with a stand-in; or rank 0's, to tune
  bool is_completed = false;       // some rank takes part only as others do: it lacked that gradient when its pass ended
};

enum class ResponseKind : uint8_t {
  kRun,        // carry out the items together, as one bucket if they are allreduces; or, if that is begun, all do
  kRefuse,     // the ranks disagree on the items: `error` says how
  kDecided,    // what becomes of the missing gradients that one rank has asked about, which the item names: in its `rows`
  kAskInFull,  // to one rank: the coordinator has forgotten `ids`, announce those requests again
  kForget,     // `ids` no longer stand for anything
  kRelease,    // to one rank: its caller that waits for the item may go on without it
  kAskOfPass,  // to one rank: it is to say when it is in no backward pass; the item is the question that depends on it
  kShutdown,   // nothing more will be carried out: some rank has left, or, with an `error`, the job cannot go on
};

struct Response {
  uint32_t set = 0;  // serial
  ResponseKind kind = ResponseKind::kRun;
  std::vector<Item> items;
  std::vector<uint32_t> ids;
  Failure error;
  bool begins = false;  // not written: the rank's own, on what it carries out before the coordinator's comes
};

// Reading, from that rank, throws InternalError for what none writes; requests have the tensors that their operation needs.
std::span<const std::byte> write(const std::vector<Announcement>& announcements, ByteWriter* writer);
std::vector<Announcement> read_announcements(std::span<const std::byte> bytes, int from);
std::span<const std::byte> write(const std::vector<Response>& responses, ByteWriter* writer);
std::vector<Response> read_responses(std::span<const std::byte> bytes, int from);

}  // namespace hvd
