#include "collective/device/device_carried.h"

#include <map>
#include <utility>

#include "base/mutex.h"
#include "collective/device/device_pieces.h"
#include "collective/device/uploads.h"
#include "collective/slices.h"
#include "collective/summing.h"

namespace hvd {
namespace {

// A reduction of several tensors: a bucket of each slice.
struct DevicePart {
  BucketReduction reduction;
  DeviceCodec codec;
  std::vector<Layout> slices;
};

// While it waits for a GPU: the other ranks are the business of whoever carries messages.
const Attention kNothingElse = [] {};

// Tables of pieces for all carried reductions on a stream. Held while a table is uploaded and its kernels are enqueued.
struct StreamTables {
  StreamTables(Device& device, Stream stream) : uploads(device, stream, kNothingElse) {}
  Mutex mutex;
  Uploads uploads GUARDED_BY(mutex);
};

// Made with the first reduction on the stream. Never freed: at the end of the process the GPU's library may have gone.
StreamTables& tables_of(Device& device, Stream stream) {
  static Mutex mutex;
  static auto* const all PT_GUARDED_BY(mutex) = new std::map<std::pair<Device*, Stream>, StreamTables>;
  MutexLock lock(mutex);
  return all->try_emplace({&device, stream}, device, stream).first->second;
}

int64_t address_of(const std::byte* memory) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory)); }

CarriedPlan plan_of(const std::vector<DevicePart>& parts, const CarriedPlace& place, int64_t step_elements) {
  auto bucket_of = [&](size_t part, size_t slice) -> const Layout& { return parts[part].slices[slice]; };
  return carried_plan(place, parts.size(), step_elements, bucket_of);
}

class CarriedOnGpu final : public Carried {
 public:
  CarriedOnGpu(const CarriedPlace& place, std::vector<DevicePart> parts, int64_t step_elements, Device& device, Stream stream)
      : Carried(place, plan_of(parts, place, step_elements)), parts_(std::move(parts)), device_(device), stream_(stream) {}

  int64_t saturated() const override { return 0; }

 private:
  void do_pack(size_t step, Messages to) override {
    for (size_t slice = 0; slice < to.size(); ++slice) {
      if (!layout_.gaps(step, slice).empty()) device_.fill(stream_, to[slice], 0, message_bytes());
    }
    with_tables(tables_of_messages(step, to), [&](const DevicePart& part, PieceTable table) {
      if (part.reduction.codec) {
        kernels().encode(stream_, part.codec, part.reduction.dtype, table, part.reduction.prescale, to.front());
      } else {
        kernels().pack(stream_, part.reduction.dtype, table, 1.0, to.front());
      }
    });
  }

  void do_reduce(size_t step, ArrivedMessages from, std::byte* result) override {
    const bool sends = place_.sends_results();
    if (sends && !layout_.gaps(step, place_.own()).empty()) device_.fill(stream_, result, 0, message_bytes());
    with_tables(tables_of_own(step), [&](const DevicePart& part, PieceTable table) {
      const auto number = static_cast<size_t>(&part - parts_.data());
      const std::vector<const std::byte*> all = contributions(step, from, number);
      DeviceReduction kernel = summing(part.reduction, part.codec, all);
      kernel.to_destination = !sends;
      if (sends) kernel.result = result + layout_.offset(step, place_.own(), number);
      kernels().reduce(stream_, table, kernel);
    });
  }

  void do_unpack(size_t step, ArrivedMessages results) override {
    with_tables(tables_of_messages(step, results), [&](const DevicePart& part, PieceTable table) {
      if (part.reduction.codec) {
        kernels().decode(stream_, part.codec, part.reduction.dtype, table, results.front());
      } else {
        kernels().unpack(stream_, part.reduction.dtype, table, 1.0, 1.0, results.front());
      }
    });
  }

  void reduce_alone() override {
    const std::vector<const std::byte*> own = {nullptr};
    with_tables(tables_of_own(0), [&](const DevicePart& part, PieceTable table) {
      DeviceReduction kernel = summing(part.reduction, {}, own);
      kernel.to_destination = true;
      kernels().reduce(stream_, table, kernel);
    });
  }

  DeviceKernels& kernels() const { return device_.kernels(); }

  // Of each part, all slices, in the messages for or from all of their owners. Places are seen from the first message.
  PieceTables tables_of_messages(size_t step, ArrivedMessages messages) const {
    PieceTables tables;
    for (size_t part = 0; part < parts_.size(); ++part) {
      tables.begin();
      for (size_t slice = 0; slice < place_.slices(); ++slice) {
        const Layout& bucket = parts_[part].slices[slice];
        const int64_t message = address_of(messages[slice]) - address_of(messages.front());
        const auto offset = static_cast<int64_t>(layout_.offset(step, slice, part));
        add_pieces(bucket, steps_.range(step, part, bucket), {.message = message + offset}, tables);
      }
    }
    return tables;
  }

  // Of each part, the slice that is reduced here, by itself.
  PieceTables tables_of_own(size_t step) const {
    PieceTables tables;
    for (size_t part = 0; part < parts_.size(); ++part) {
      tables.begin();
      const Layout& bucket = parts_[part].slices[place_.own()];
      add_pieces(bucket, steps_.range(step, part, bucket), {.stage = Stage::kResult}, tables);
    }
    return tables;
  }

  template <typename Enqueue>
  void with_tables(PieceTables tables, Enqueue enqueue) {
    StreamTables& shared = tables_of(device_, stream_);
    MutexLock lock(shared.mutex);
    tables.upload(shared.uploads);
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (tables[part].count != 0) enqueue(parts_[part], tables[part]);
    }
  }

  const std::vector<DevicePart> parts_;
  Device& device_;
  const Stream stream_;
};

}  // namespace

bool gpu_can_carry(const BucketReduction& reduction, int size) { return kernels_sum(reduction.dtype, reduction.op, size); }

std::unique_ptr<Carried> device_carried_allreduce(const std::vector<CarriedPart>& parts, const CarriedPlace& place,
                                                  int64_t step_elements, Device& device, Stream stream) {
  const int slices = static_cast<int>(place.slices()), owned = place.sends_results() ? place.rank : kNoPart;
  std::vector<DevicePart> made;
  for (const auto& [reduction, tensors] : parts) {
    DevicePart& part = made.emplace_back(DevicePart{reduction, codec_of(reduction), {}});
    if (place.size == 1) {
      part.slices.emplace_back(tensors, reduction);
    } else {
      part.slices = slices_of(tensors, reduction, slices, owned, [&](Feedback& of, Stage stage, int64_t begin, int64_t count) {
        return of.claim_on(device, stream, stage, begin, count, kNothingElse);
      });
    }
  }
  return std::make_unique<CarriedOnGpu>(place, std::move(made), step_elements, device, stream);
}

std::unique_ptr<Carried> device_carried_reducescatter(const BucketReduction& reduction, const BucketTensor& tensor,
                                                      const CarriedPlace& place, Device& device, Stream stream) {
  std::vector<DevicePart> made;
  DevicePart& part = made.emplace_back(DevicePart{reduction, codec_of(reduction), {}});
  for (std::vector<BucketTensor>& chunk : chunks_of(tensor, reduction.dtype, place)) {
    part.slices.emplace_back(std::move(chunk), reduction);
  }
  return std::make_unique<CarriedOnGpu>(place, std::move(made), 0, device, stream);
}

}  // namespace hvd
