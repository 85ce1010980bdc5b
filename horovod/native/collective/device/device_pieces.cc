#include "collective/device/device_pieces.h"

namespace hvd {

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
