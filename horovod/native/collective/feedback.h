// Error feedback: keeps what quantisation lost of one parameter's gradient, to add it to the gradient that is encoded next.
//
// A rank encodes at two stages, and keeps the loss of the elements that it encodes there:
//
//   kSent    its contribution; on a hierarchical route, its host's sum of the slice that it carries to other hosts.
//            Units: the encoded values, after prescale.
//   kResult  the reduced slice that it owns and sends to all ranks. Units: the result, after scale.
//
// A residual therefore keeps its effect on the parameter if slices move between ranks: with Average over n ranks, a sent value
// counts 1/n, and so does its residual in the next step. If the loss scale changes, both stages multiply by the same factor.
// Routes that gather codes use only kSent.
//
// Losses of outliers are not kept: see codec/residual_bound.h. Each stage has a bound of its residuals.
//
// An operation on a GPU moves the residuals of its stage to the GPU's memory. They stay there for later operations on the same
// stream. Functions that read them here copy them back first, which waits for that stream.
//
// Not thread-safe: an operation uses its Feedback until it is done; on a GPU, until all its work is enqueued.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "codec/residual_bound.h"
#include "device/device.h"
#include "device/stream.h"

namespace hvd {

enum class Stage { kSent, kResult };

class Feedback : public std::enable_shared_from_this<Feedback> {
 public:
  // Elements [begin, begin + values.size()) of the parameter; all others have residual 0.
  struct Residual {
    int64_t begin = 0;
    std::vector<float> values;
  };

  // Throws InvalidArgument if `count`, the number of the parameter's elements, is negative.
  explicit Feedback(int64_t count);

  int64_t count() const { return count_; }
  int64_t bytes() const;  // of residuals held on the host and on a GPU

  // Returns the residuals of these elements, which the stage holds from now on. Drops its other residuals and counts those not
  // equal to zero, because another rank encodes their elements now. A kSent claim of a part keeps the rest, because the next
  // route may have this rank encode all elements again. Throws InvalidArgument for elements outside [0, count()).
  ClaimedResiduals claim(Stage stage, int64_t begin, int64_t count);
  // The same in GPU memory, for work enqueued on `stream` from now on; nulls for no elements. Device and stream must outlive
  // this object. If the residuals have to move, it waits for streams, and calls `attend` meanwhile.
  ClaimedResiduals claim_on(Device& device, Stream stream, Stage stage, int64_t begin, int64_t count,
                            const ProgressCallback& attend);
  // The bound for encoding a host's sum on the CPU while a GPU holds the residuals of this rank's contribution.
  ResidualBound* bound_of_sums();
  // Residuals dropped since the last call.
  int64_t take_dropped();

  const Residual& at(Stage stage) const { return on_host(stage); }
  void restore(Stage stage, Residual residual);
  // Multiplies every residual, when gradients get other units. Throws InvalidArgument unless the factor is finite.
  void scale(float factor);
  void clear();

  // The usual largest residual of each bound: of kSent, of kResult, and of sums of a host.
  static constexpr size_t kBounds = 3;
  std::array<float, kBounds> usual() const;
  void set_usual(const std::array<float, kBounds>& usual);

  // The number of operations so far; a key of stochastic rounding, so that each operation draws other numbers.
  uint64_t uses = 0;

 private:
  // A stage's residuals in GPU memory.
  struct OnDevice {
    Device* device = nullptr;
    Stream stream = nullptr;
    int64_t begin = 0, count = 0, turn = 0;
    DeviceMemory memory;  // values, then their ResidualBounds; null while the residuals are on the host

    ResidualBound* bounds() const;
  };

  void check(int64_t begin, int64_t count) const;
  Residual& on_host(Stage stage) const;  // const because callers cannot see where the residuals are

  const int64_t count_;
  int64_t dropped_ = 0;
  mutable Residual stages_[2];
  mutable OnDevice on_device_[2];
  mutable ResidualBound bounds_[kBounds];  // by stage, then of sums
};

}  // namespace hvd
