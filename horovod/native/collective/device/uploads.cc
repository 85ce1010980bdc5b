#include "collective/device/uploads.h"

#include <algorithm>
#include <cstring>

#include "collective/bucket_tensor.h"
#include "device/await.h"

namespace hvd {

const DevicePiece* Uploads::upload(std::span<const DevicePiece> pieces) {
  Slot& slot = slots_[next_++ % kSlots];
  if (pieces.empty()) return nullptr;
  await(device_, slot.copied, attend_);
  if (pieces.size_bytes() > slot.bytes) {
    if (slot.bytes != 0) await(device_, device_.record(stream_), attend_);  // to free waits for the GPU
    slot.bytes = std::max(pieces.size_bytes(), 2 * slot.bytes);
    slot.pinned = device_.allocate_pinned(slot.bytes);
    slot.on_gpu = device_.allocate(slot.bytes);
  }
  std::memcpy(slot.pinned.get(), pieces.data(), pieces.size_bytes());
  device_.copy(stream_, slot.on_gpu.get(), slot.pinned.get(), pieces.size_bytes());
  slot.copied = device_.record(stream_);
  return reinterpret_cast<const DevicePiece*>(slot.on_gpu.get());
}

size_t PieceTables::begin() {
  tables_.push_back({pieces_.size(), 0, 0});
  return tables_.size() - 1;
}

void PieceTables::add(DevicePiece piece) {
  Extent& table = tables_.back();
  piece.first_run = table.runs;
  pieces_.push_back(piece);
  table.count += 1;
  table.runs += (piece.count + Tiles::kRun - 1) / Tiles::kRun;
}

void PieceTables::upload(Uploads& uploads) { uploaded_ = uploads.upload(pieces_); }

PieceTable PieceTables::operator[](size_t table) const {
  const Extent& extent = tables_[table];
  return {uploaded_ ? uploaded_ + extent.first : nullptr, extent.count, extent.runs};
}

}  // namespace hvd
