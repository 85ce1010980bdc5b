// Error feedback: what quantisation has lost of one parameter's gradients, to be added to what is encoded next.
//
// A rank encodes at two places, and keeps what each has lost of the elements that it encodes there:
//
//   kSent    its contribution; on a hierarchical route the sum of its host, of the slice that it carries to the others.
//            In units of what is encoded, after prescale: one rank's (or host's) part in the sum.
//   kResult  the reduced slice that it owns and sends to everybody. In units of the result, after scale.
//
// So a residual stands for the same step of the parameter whatever is divided where: with Average over n ranks, what is
// sent counts 1/n, and so does what was lost of it and goes along the next time. It is also why both multiply by the same
// factor when the loss is scaled otherwise. Where codes are gathered and summed by everybody, only kSent is in use.
//
// What an outlier has lost is not kept: see codec/residual_bound.h. Of each stage a bound goes along with its residuals.
//
// An operation on a GPU claims residuals there: they live in the GPU's memory while one operation after the other claims
// them, and come home as soon as they are asked for here, which waits for the operations on their stream.
//
// Not thread-safe: an operation that was given a Feedback uses it until the operation is done; on a GPU, until everything
// of it has been enqueued.
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

  // Of a parameter of `count` elements. Throws InvalidArgument if that is negative.
  explicit Feedback(int64_t count);

  int64_t count() const { return count_; }
  int64_t bytes() const;  // held now, here and on a GPU

  // The residuals of these elements, which the stage holds from now on. Of others it held, those that are not zero are
  // dropped and counted: some other rank encodes these elements now. (But what was sent stays owed when this operation's
  // route has the rank carry a part only: the next one may carry all again.) InvalidArgument outside of [0, count()).
  ClaimedResiduals claim(Stage stage, int64_t begin, int64_t count);
  // The same in memory of the GPU, for what is enqueued on the stream from now on. Null for no elements. Both outlive this.
  // Residuals that come from elsewhere wait for the streams, and call `attend` meanwhile.
  ClaimedResiduals claim_on(Device& device, Stream stream, Stage stage, int64_t begin, int64_t count,
                            const ProgressCallback& attend);
  // Of what encoding the sum of a host loses here, while a GPU has the residuals of its own contribution.
  ResidualBound* bound_of_sums();
  // How many were dropped since the last call.
  int64_t take_dropped();

  const Residual& at(Stage stage) const { return home(stage); }
  void restore(Stage stage, Residual residual);
  // Every residual times a finite factor: gradients are in other units from now on.
  void scale(float factor);
  void clear();

  // The usual largest residual of each bound: of what is sent, of results, and of sums of a host.
  static constexpr size_t kBounds = 3;
  std::array<float, kBounds> usual() const;
  void set_usual(const std::array<float, kBounds>& usual);

  // How many operations it took part in so far: gives stochastic rounding other numbers each time.
  uint64_t uses = 0;

 private:
  // Residuals of a stage while a GPU has them.
  struct Away {
    Device* device = nullptr;
    Stream stream = nullptr;
    int64_t begin = 0, count = 0, turn = 0;
    DeviceMemory memory;  // null: they are at home. The values, and behind them their ResidualBounds

    ResidualBound* bounds() const;
  };

  void check(int64_t begin, int64_t count) const;
  Residual& home(Stage stage) const;  // nobody sees where they are: const

  const int64_t count_;
  int64_t dropped_ = 0;
  mutable Residual stages_[2];
  mutable Away away_[2];
  mutable ResidualBound bounds_[kBounds];  // by stage, and of sums
};

}  // namespace hvd
