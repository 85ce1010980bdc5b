#include "cuda/kernels/elements.cuh"

namespace hvd {
// Named, because nvcc puts a digest of this file's path into an unnamed namespace, and wheels must be reproducible.
inline namespace of_elements {

// 16 bytes of elements.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T element[kCount];
};

// Like load and store of ReduceKernels, for sums in the dtype itself.
template <typename T>
HVD_DEVICE T scaled(T x, const ElementScale& scale) {
  if (scale.divisor != 1) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<T>(static_cast<int64_t>(x) / scale.divisor);
    }
  }
  if (scale.factor == 1.0) return x;
  return Arithmetic<T>::narrow(times<typename Arithmetic<T>::Sum>(Arithmetic<T>::widen(x), scale.factor));
}

// Neighbouring threads read neighbouring packs, and each thread reads four packs before it writes one.
template <typename T>
HVD_DEVICE void move_run(const T* from, T* to, int count, const ElementScale& scale) {
  constexpr int kAtOnce = 4;
  int done = 0;
  if (is_aligned(from, 16) && is_aligned(to, 16)) {
    const int packs = count / Pack<T>::kCount;
    for (int first = 0; first < packs; first += kAtOnce * kMoveThreads) {
      Pack<T> pack[kAtOnce];
      HVD_UNROLLED
      for (int k = 0; k < kAtOnce; ++k) {
        const int at = first + k * kMoveThreads + static_cast<int>(threadIdx.x);
        if (at < packs) pack[k] = reinterpret_cast<const Pack<T>*>(from)[at];
      }
      HVD_UNROLLED
      for (int k = 0; k < kAtOnce; ++k) {
        const int at = first + k * kMoveThreads + static_cast<int>(threadIdx.x);
        if (at >= packs) continue;
        HVD_UNROLLED
        for (int i = 0; i < Pack<T>::kCount; ++i) pack[k].element[i] = scaled(pack[k].element[i], scale);
        reinterpret_cast<Pack<T>*>(to)[at] = pack[k];
      }
    }
    done = packs * Pack<T>::kCount;
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < count; i += kMoveThreads) {
    store_element(scaled(load_element(from + i), scale), to + i);
  }
}

template <typename T>
__global__ void __launch_bounds__(kMoveThreads)
    move_elements(PieceTable table, ElementScale scale, bool unpacks, uint8_t* message) {
  const DevicePiece piece = table.pieces[piece_with(table, blockIdx.x)];
  const int64_t begin = (blockIdx.x - piece.first_run) * kRun;
  const int64_t left = piece.count - begin;
  const int count = static_cast<int>(left < kRun ? left : kRun);
  T* packed = reinterpret_cast<T*>(message + piece.message_offset) + begin;
  if (unpacks) {
    move_run(packed, static_cast<T*>(piece.destination) + begin, count, scale);
  } else {
    move_run(static_cast<const T*>(piece.source) + begin, packed, count, scale);
  }
}

__global__ void __launch_bounds__(kThreads) sum_all(PieceTable table, Reduction reduction) {
  const Tile tile = own_tile(table);
  if (tile.count <= 0) return;
  Elements sum;
  sum_elements(reduction, tile, sum);
  multiply(sum, reduction.factor);
  if (reduction.to_destination) store_sum(reduction, tile, sum, tile.piece.destination);
  if (reduction.result != nullptr) store_sum(reduction, tile, sum, reduction.result + tile.piece.message_offset);
}

}  // namespace of_elements

MoveKernel move_kernel(DType dtype) {
  switch (dtype) {
#define HVD_CASE(name, number, type, text) \
  case DType::name:                        \
    return move_elements<type>;
    HVD_FOR_EACH_DTYPE(HVD_CASE)
#undef HVD_CASE
  }
  return nullptr;
}

SumKernel sum_kernel() { return sum_all; }

}  // namespace hvd
