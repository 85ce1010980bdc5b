// What an operation is made of, be its tensors in CPU memory or on a GPU: which of the tensors take part in what, where results
// go, what the caller gets. How bytes are moved and reduced is the executor's. Engine thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "schedule/result.h"
#include "schedule/workbench.h"

namespace hvd {

class Operations {
 public:
  explicit Operations(Workbench& bench) : bench_(bench) {}
  virtual ~Operations() = default;

  // Several are one bucket.
  Result carry_out(std::span<const Agreed> together);

 protected:
  // Of the tensors of one dtype.
  virtual void allreduce(std::span<const Agreed> together, DType dtype) = 0;
  virtual void reducescatter(std::span<const Agreed> together, DType dtype) = 0;
  // The collectives of collective/*.h: bytes are by rank, and what is received by rank lies in a row.
  virtual void allgather(const void* own, std::span<const size_t> bytes, std::byte* all) = 0;
  virtual void broadcast(int root, void* data, size_t bytes) = 0;
  virtual void alltoall(const void* source, std::span<const size_t> sent, std::span<const size_t> received,
                        std::byte* destination) = 0;
  // Memory for a result, and a copy into memory of the same kind.
  virtual std::shared_ptr<std::byte[]> allocate(size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;

  Workbench& bench_;

 private:
  Result allgather(const Agreed& agreed);
  Result broadcast(const Agreed& agreed);
  Result alltoall(const Agreed& agreed);
};

}  // namespace hvd
