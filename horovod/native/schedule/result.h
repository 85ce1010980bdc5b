// What an operation leaves behind besides what it wrote into the caller's tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "schedule/lent_memory.h"

namespace hvd {

struct Result {
  // allgather: first dimensions, tensor by tensor and in that by rank; alltoall: rows received by rank; join: the last
  // rank; a process set's id where one was added
  std::vector<int64_t> rows;
  // allgather, alltoall: what was received, tensor by tensor at multiples of 16 bytes, owned by the core
  std::shared_ptr<std::byte[]> data;
  size_t bytes = 0;

  // Of an operation on a GPU, which may still be under way there: the data is of its memory.
  Device* device = nullptr;  // null: it was in CPU memory, and is done
  Event done;
  std::shared_ptr<LentMemory> lent;

  // Any thread. Has the stream go on only when the operation is done; nothing where it was in CPU memory.
  void order(Stream stream) const;
  // Copies some of the data to the GPU's or the host's memory when the operation is done; the stream does it. Keeps the data
  // until then. Throws InvalidArgument for what is not there.
  void copy_to(size_t offset, void* to, size_t count, Stream stream) const;
};

}  // namespace hvd
