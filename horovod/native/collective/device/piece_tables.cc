#include "collective/device/piece_tables.h"

#include <algorithm>
#include <cstring>

#include "collective/layout.h"
#include "device/device.h"

namespace hvd {

const DevicePiece* Uploads::upload(std::span<const DevicePiece> pieces) {
  Slot& slot = slots_[next_++ % kSlots];
  if (pieces.empty()) return nullptr;
  await(device_, slot.copied, attend_);
  if (pieces.size_bytes() > slot.bytes) {
    if (slot.bytes != 0) await(device_, device_.record(stream_), attend_);  // freeing waits for the GPU
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

DeviceReduction summing(const BucketReduction& reduction, const DeviceCodec& in, std::span<const std::byte* const> messages) {
  DeviceReduction kernel;
  kernel.dtype = reduction.dtype;
  kernel.messages = messages;
  kernel.factor = reduction.scale.factor;
  kernel.divisor = reduction.scale.divisor;
  kernel.in = in;
  kernel.out = codec_of(reduction);
  if (in.coding == Coding::kElements) kernel.prescale = reduction.prescale;
  return kernel;
}

void write_messages(DeviceKernels& kernels, Stream stream, const BucketReduction& reduction, const PieceTable& table,
                    double prescale, std::byte* messages) {
  if (reduction.codec == nullptr) return kernels.pack(stream, reduction.dtype, table, 1.0, messages);
  kernels.encode(stream, codec_of(reduction), reduction.dtype, table, prescale, messages);
}

void read_messages(DeviceKernels& kernels, Stream stream, const BucketReduction& reduction, const PieceTable& table,
                   const std::byte* messages) {
  if (reduction.codec == nullptr) return kernels.unpack(stream, reduction.dtype, table, 1.0, 1.0, messages);
  kernels.decode(stream, codec_of(reduction), reduction.dtype, table, messages);
}

void add_pieces(const Layout& layout, Range range, const PiecePlace& place, PieceTables& tables) {
  const auto element = static_cast<int64_t>(size_of(layout.reduction().dtype));
  const bool is_sent = place.stage == Stage::kSent;
  int64_t message = place.message, elements = place.elements;
  layout.for_each_piece(range, [&](const BucketTensor& tensor, int64_t begin, int64_t count) {
    const ClaimedResiduals residual = (is_sent ? tensor.sent : tensor.result).from(begin);
    DevicePiece piece;
    piece.source = static_cast<const std::byte*>(tensor.source) + begin * element;
    if (tensor.destination) piece.destination = static_cast<std::byte*>(tensor.destination) + begin * element;
    piece.residual = residual.values;
    piece.bounds = residual.bound;
    piece.turn = residual.turn;
    piece.count = count;
    piece.message_offset = message;
    piece.elements_offset = elements;
    piece.key = is_sent ? tensor.sent_key : tensor.result_key;
    piece.first_number = tensor.offset + begin;
    tables.add(piece);
    message += place.is_of_elements ? count * element : layout.piece_bytes(count);
    elements += count * element;
  });
}

}  // namespace hvd
