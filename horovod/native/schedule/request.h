// What a rank asks for under one name, and the messages in which ranks and coordinator speak of it.
//
//   rank -> coordinator   announcement := leaving:u8 ids:u32[] requests:Request[]
//   coordinator -> ranks  verdicts     := Verdict[]
//
// An id stands for a request that all ranks have agreed on before (see response_cache.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "collective/reduce.h"

namespace hvd {

enum class Operation : uint8_t { kAllreduce, kAllgather, kBroadcast, kBarrier };

std::string_view name_of(Operation operation);

using Shape = std::vector<int64_t>;

int64_t element_count(const Shape& shape);
std::string to_text(const Shape& shape);  // "(3, 4)", "(3,)", "()"

struct Request {
  Operation operation = Operation::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = -1;           // broadcast
  std::string name;
  std::string codec;           // "" or Codec::name()
  std::vector<Shape> shapes;   // of each tensor; several are one group

  bool operator==(const Request&) const = default;
  int64_t bytes() const;  // of all tensors
};

struct Announcement {
  bool is_leaving = false;  // the rank shuts down
  std::vector<uint32_t> ids;
  std::vector<Request> requests;

  bool is_empty() const { return !is_leaving && ids.empty() && requests.empty(); }
};

// One request in a verdict: by id if the ranks know it, else by name, perhaps with the id it gets from now on.
struct Item {
  uint32_t id = 0;           // known already; 0 = none
  std::string name;          // if there is no id
  uint32_t assigned_id = 0;  // remember it under this; 0 = do not
  std::vector<int64_t> rows; // allgather: first dimension by rank
};

enum class VerdictKind : uint8_t {
  kRun,        // carry out the items together, as one bucket if they are allreduces
  kRefuse,     // the ranks disagree on the items: `error` says how
  kAskInFull,  // to one rank: the coordinator has forgotten `ids`, announce those requests again
  kForget,     // `ids` no longer stand for anything
  kShutdown,   // some rank has left: nothing more will be carried out
};

struct Verdict {
  VerdictKind kind = VerdictKind::kRun;
  std::vector<Item> items;
  std::vector<uint32_t> ids;
  std::string error;
};

std::span<const std::byte> write(const Announcement& announcement, ByteWriter* writer);
Announcement read_announcement(std::span<const std::byte> bytes);
std::span<const std::byte> write(const std::vector<Verdict>& verdicts, ByteWriter* writer);
std::vector<Verdict> read_verdicts(std::span<const std::byte> bytes);

}  // namespace hvd
