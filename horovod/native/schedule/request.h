// Requests, and the messages about them: ranks send Announcement[], the coordinator Response[]. `set` is the serial number of a
// process set. Each message lists its members in the order on the wire (see base/bytes.h).
#pragma once

#include <optional>
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
  int32_t root = -1;          // of an operation with a root: its rank in the job
  bool follows = false;       // a later round of an operation that takes several requests
  bool on_gpu = false;        // the tensors are in GPU memory
  std::string name, codec;    // codec: "" or Codec::name()
  std::vector<DType> dtypes;  // of each tensor; several are a group
  std::vector<Shape> shapes;
  std::vector<int64_t> set;  // adding a process set: its ranks; removing one: its id
  std::string text;          // tune: rank 0's decision (see Settings::tune); missing gradients: the subjects

  bool operator==(const Request&) const = default;
  int64_t bytes() const, bytes_of(size_t tensor) const;  // of all tensors on this rank, and of one tensor
  int64_t row_bytes_of(size_t tensor) const;             // of one index of the first dimension
  bool has_one_dtype() const;

  static void members(auto& r, auto visit) {
    visit(r.operation, r.op, r.prescale, r.postscale, r.root, r.follows, r.on_gpu, r.name, r.codec, r.dtypes, r.shapes, r.set,
          r.text);
  }
  void check(const ByteReader& in) const;  // the properties of tensors on which all code relies
};

struct Announcement {
  uint32_t set = 0;
  bool is_leaving = false;    // the rank shuts down
  uint32_t answers = 0;       // not 0: `requests` repeat in full the requests of so many forgotten ids
  std::vector<uint32_t> ids;  // requests that all ranks have agreed on before, see response_cache.h
  std::vector<Request> requests;
  std::vector<uint32_t> places;   // with in_order: the index of each of `requests` among all requests announced here
  bool is_begun = false;          // with in_order: the rank carries out `ids` without waiting for a response
  std::vector<uint32_t> batches;  // if is_begun: the ends of batches, as indices into `ids`
  std::string blocked_on;         // if not empty, the only content: a caller waits for this operation
  bool may_yield = false;         // that caller can be released, see deadlocks.h
  uint32_t pass = 0;              // number of backward passes that the rank had begun at the last of these requests
  std::string no_pass_at;         // if not empty, the only content: the answer to kAskOfPass about this question

  static void members(auto& a, auto visit) {
    visit(a.set, a.is_leaving, a.answers, a.ids, a.requests, a.places, a.is_begun, a.batches, a.blocked_on, a.may_yield, a.pass,
          a.no_pass_at);
  }
  void check(const ByteReader& in) const;
};

// One request in a response, by id if the ranks know it, else by name.
struct Item {
  uint32_t id = 0;                 // known already; 0 = none
  std::string name;                // if there is no id
  uint32_t assigned_id = 0;        // the id under which ranks remember it; 0 = they do not
  std::vector<int64_t> rows;       // allgather: first dimensions, by tensor, then by rank; join: the last rank
  std::optional<Request> request;  // for the stand-ins of ranks that have joined; tune: rank 0's request
  bool is_completed = false;       // some rank lacked that gradient, and takes part because of a kStart

  static void members(auto& item, auto visit) {
    visit(item.id, item.name, item.assigned_id, item.rows, item.is_completed, item.request);
  }
  void check(const ByteReader& in) const;
};

enum class ResponseKind : uint8_t {
  kRun,        // carry out the items together, several as one bucket; or, if begun already, all ranks have requested them
  kRefuse,     // the ranks disagree on the items, as in `error`
  kDecided,    // the answer to the question that the item names, in its `rows`
  kAskInFull,  // to one rank: the coordinator has forgotten `ids`; announce those requests again in full
  kForget,     // `ids` have become invalid
  kRelease,    // to one rank: its caller that waits for the item may go on without it
  kAskOfPass,  // to one rank: answer when you are in no backward pass; the item is the question that needs this
  kShutdown,   // no more operations: some rank has left, or, with an `error`, the job cannot go on
};
constexpr ResponseKind last_of(ResponseKind) { return ResponseKind::kShutdown; }

struct Response {
  uint32_t set = 0;  // serial
  ResponseKind kind = ResponseKind::kRun;
  std::vector<Item> items;
  std::vector<uint32_t> ids;
  Failure error;
  bool begins = false;  // not serialized: the rank's own response, by which it begins operations

  static void members(auto& r, auto visit) { visit(r.set, r.kind, r.items, r.ids, r.error); }
  void check(const ByteReader& in) const;
};

}  // namespace hvd
