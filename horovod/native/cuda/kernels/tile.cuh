// How a bucket is divided among a GPU's threads. A thread block works on a run of 4096 elements, each of its four warps on a
// tile of 1024, and nobody waits for anybody but the lanes of a warp.
//
//   tile   := chunk[8]
//   chunk  := 4 elements of each of 32 lanes, one after the other
//
// So a warp's access to a chunk of float32 is 32 times 16 bytes in a row, and eight of them are under way at once: 4 KiB for
// each warp, 64 KiB or more for each multiprocessor, where the latency of an H100's memory times its bandwidth is about
// 20 KiB. 16-bit elements are read 8 bytes at a time: 256 bytes in a row are whole sectors all the same, and the places of
// elements, on which the codes depend, are the same for every dtype. A block of codes lies within a chunk (32, 64 or 128
// elements) or in whole chunks (256, 512, 1024), so a tile has whole blocks, whatever their size.
#pragma once

#include "codec/minifloat.h"
#include "cuda/launch.h"
#include "device/device_kernels.h"

#define HVD_DEVICE __device__ __forceinline__
// Loops whose arrays are to live in registers are unrolled; those that seldom run are not to take room.
#if defined(__CUDACC__)
#define HVD_UNROLLED _Pragma("unroll")
#define HVD_ROLLED _Pragma("unroll 1")
#else
#define HVD_UNROLLED
#define HVD_ROLLED
#endif

namespace hvd {

constexpr int kRun = 4096;  // as Tiles::kRun in collective/layout.h
constexpr int kLanes = 32;
constexpr int kLaneElements = 4;
constexpr int kChunk = kLanes * kLaneElements;
constexpr int kChunks = 8;
constexpr int kTile = kChunks * kChunk;
constexpr int kTilesOfRun = kRun / kTile;
constexpr int kThreads = kTilesOfRun * kLanes;  // of a thread block
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// What one lane holds of a tile.
using Elements = float[kChunks][kLaneElements];

HVD_DEVICE int lane_number() { return static_cast<int>(threadIdx.x % kLanes); }

// Where elements of a tile are in it.
HVD_DEVICE int job_hosts_of(int chunk, int element) { return chunk * kChunk + lane_number() * kLaneElements + element; }

struct Tile {
  DevicePiece piece;
  int64_t run;    // in the piece
  int number;     // of the tile in its run
  int run_count;  // elements of the run
  int count;      // and of the tile, kTile at most; none, and maybe below 0, where the run ends before it

  HVD_DEVICE int64_t begin() const { return run * kRun + number * kTile; }  // first element in the piece
};

// The last piece that starts at this run or before. 32 lanes look at once, so among 1000 pieces they find it in two steps
// where halving would take ten, each as long as memory takes to answer.
HVD_DEVICE int64_t piece_with(const PieceTable& table, int64_t run) {
  int64_t begin = 0, end = table.count;
  while (end - begin > 1) {
    const int64_t step = (end - begin + kLanes - 1) / kLanes;
    const int64_t candidate = begin + lane_number() * step;
    const bool is_before = candidate < end && table.pieces[candidate].first_run <= run;
    const unsigned before = __ballot_sync(kAllLanes, is_before);
    begin += (kLanes - 1 - __clz(static_cast<int>(before))) * step;  // the first candidate always is
    end = begin + step < end ? begin + step : end;
  }
  return begin;
}

// The calling warp's part.
HVD_DEVICE Tile own_tile(const PieceTable& table) {
  Tile tile;
  tile.piece = table.pieces[piece_with(table, blockIdx.x)];
  tile.run = blockIdx.x - tile.piece.first_run;
  tile.number = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t left = tile.piece.count - tile.run * kRun;
  tile.run_count = static_cast<int>(left < kRun ? left : kRun);
  const int left_of_run = tile.run_count - tile.number * kTile;
  // Not raised to 0: from both bounds, ptxas 13.0 makes one instruction for sm_90 whose flag it then takes for
  // `count == kTile`, and an H100 wrote whole tiles over what comes after a part of one.
  tile.count = left_of_run < kTile ? left_of_run : kTile;
  return tile;
}

// Memory of the calling warp, a word for each element of a tile, for what happens too seldom to deserve code without loops:
// registers have no index, this has. Between writing and reading lanes meet by __syncwarp().
HVD_DEVICE uint32_t* scratch() {
  alignas(16) __shared__ uint32_t words[kTilesOfRun][kTile];
  return words[threadIdx.x / kLanes];
}

inline dim3 grid_of(const PieceTable& table) { return dim3(static_cast<unsigned>(table.runs)); }

}  // namespace hvd
