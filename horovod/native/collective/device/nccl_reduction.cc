#include "collective/device/nccl_reduction.h"

#include <algorithm>

namespace hvd {
NcclReduction::NcclReduction(const NcclContext& nccl, NcclPlace place, Options options, std::vector<Steps> slices)
    : nccl_(nccl), place_(std::move(place)), options_(options), slices_(std::move(slices)), codec_(codec_of(options_.across)) {
  uint32_t steps = 0;
  for (const Steps& slice : slices_) steps = std::max(steps, slice.count());
  for (uint32_t step = 0; step < steps; ++step) {
    plans_.push_back(planned(step));
    make_tables(step, plans_.back());
    slot_bytes_ = std::max(slot_bytes_, plans_.back().end);
  }
  stages_ = stages().size();
  arrived_.resize(stages_);
  slots_ = nccl_.workspace.scratch(std::min<size_t>(stages_, steps) * slot_bytes_);
  tables_.upload(nccl_.workspace.uploads());
}

size_t NcclReduction::own_padded(const Plan& plan) const {
  return padded_for_gpu(plan.message_bytes[at(place_.local_rank, place_.party)]);
}

NcclReduction::Plan NcclReduction::planned(uint32_t step) const {
  Plan plan;
  size_t at_element = 0;
  const size_t element = size_of(options_.across.dtype);
  for (int carrier = 0; carrier < place_.carriers; ++carrier) {
    const Steps& slice = slices_[static_cast<size_t>(carrier)];
    for (int party = 0; party < place_.party_count; ++party) plan.message_bytes.push_back(slice.bytes(step, party));
    if (!options_.is_hierarchical) continue;
    plan.element_bytes.push_back(static_cast<size_t>(slice.elements(step)) * element);
    plan.deposit.push_back(at_element);
    if (carrier != place_.local_rank) at_element += padded_for_gpu(plan.element_bytes.back());
  }
  plan.end = plan.deposits = at_element;
  if (options_.is_hierarchical && place_.carries()) {
    plan.end += place_.locals.size() * padded_for_gpu(plan.element_bytes[static_cast<size_t>(place_.local_rank)]);
  }
  if (!options_.gather && place_.carries()) {
    for (int party = 0; party < place_.party_count; ++party) {
      plan.sent.push_back(plan.end);
      plan.end += padded_for_gpu(plan.message_bytes[at(place_.local_rank, party)]);
    }
    plan.received = plan.end;
    plan.end += static_cast<size_t>(place_.party_count) * own_padded(plan);
  }
  if (options_.delivers_results) place_landings(plan);
  return plan;
}

// Contributions that one kernel sums lie at one distance from each other, whatever slice they are of.
void NcclReduction::place_landings(Plan& plan) const {
  plan.landing.resize(plan.message_bytes.size());
  if (options_.gather) {
    for (int carrier = 0; carrier < place_.carriers; ++carrier) {
      plan.gather_stride += padded_for_gpu(plan.message_bytes[at(carrier, 0)]);
    }
  }
  size_t next = plan.end;
  for (int carrier = 0; carrier < place_.carriers; ++carrier) {
    for (int party = 0; party < place_.party_count; ++party) {
      const size_t i = at(carrier, party);
      plan.landing[i] = options_.gather ? next + static_cast<size_t>(party) * plan.gather_stride : next;
      if (!options_.gather) next += padded_for_gpu(plan.message_bytes[i]);
    }
    if (options_.gather) next += padded_for_gpu(plan.message_bytes[at(carrier, 0)]);
  }
  plan.end = options_.gather ? plan.end + static_cast<size_t>(place_.party_count) * plan.gather_stride : next;
}

void NcclReduction::make_tables(uint32_t step, Plan& plan) {
  auto offset = [](size_t bytes) { return static_cast<int64_t>(bytes); };
  plan.deposit_table = tables_.begin();
  for (int carrier = 0; options_.is_hierarchical && carrier < place_.carriers; ++carrier) {
    if (carrier == place_.local_rank) continue;
    const auto c = static_cast<size_t>(carrier);
    int64_t at_element = offset(plan.deposit[c]);
    for (size_t i = 0; i < slices_[c].buckets(); ++i) {
      const Range range = slices_[c].range(step, i);
      add_pieces(slices_[c].bucket(i), range, {.message = at_element, .is_of_elements = true}, tables_);
      at_element += range.count() * offset(size_of(options_.across.dtype));
    }
  }
  plan.contribute_table = tables_.begin();
  if (place_.carries()) add_contribution(step, plan);
  plan.reduce_table = tables_.begin();
  if (!options_.gather && place_.carries()) {
    const auto i = static_cast<size_t>(place_.party);
    add_pieces(own().bucket(i), own().range(step, i), {.stage = Stage::kResult}, tables_);
  }
  plan.collect_table = tables_.begin();
  for (int carrier = 0; options_.delivers_results && carrier < place_.carriers; ++carrier) {
    const Steps& slice = slices_[static_cast<size_t>(carrier)];
    for (size_t i = 0; i < slice.buckets(); ++i) {
      // What is not encoded has its result in place already.
      if (!options_.gather && !is_encoded() && static_cast<int>(i) == place_.party) continue;
      add_pieces(slice.bucket(i), slice.range(step, i), {.message = offset(plan.landing[at(carrier, static_cast<int>(i))])},
                 tables_);
    }
  }
}

void NcclReduction::add_contribution(uint32_t step, const Plan& plan) {
  int64_t at_element = 0;
  for (size_t i = 0; i < own().buckets(); ++i) {
    const Range range = own().range(step, i);
    const auto to = static_cast<int64_t>(options_.gather ? plan.landing[at(place_.local_rank, place_.party)] : plan.sent[i]);
    if (options_.is_hierarchical) {
      add_pieces(own().bucket(i), range, {.message = to, .elements = at_element}, tables_);
      at_element += range.count() * static_cast<int64_t>(size_of(options_.across.dtype));
    } else if (options_.gather || is_encoded() || static_cast<int>(i) != place_.party) {  // or it is read in place
      add_pieces(own().bucket(i), range, {.message = to}, tables_);
    }
  }
}

// Codes are of what was prescaled.
DeviceReduction NcclReduction::summing(const BucketReduction& reduction, const DeviceCodec& in,
                                       std::span<const std::byte* const> messages) const {
  DeviceReduction kernel;
  kernel.dtype = reduction.dtype;
  kernel.messages = messages;
  kernel.factor = reduction.scale.factor;
  kernel.divisor = reduction.scale.divisor;
  kernel.in = in;
  kernel.out = codec_;
  if (in.coding == Coding::kElements) kernel.prescale = reduction.prescale;
  return kernel;
}

std::vector<NcclReduction::Work> NcclReduction::stages() const {
  std::vector<Work> all;
  if (options_.is_hierarchical) all.push_back(&NcclReduction::deposit);
  all.push_back(&NcclReduction::contribute);
  if (!options_.gather) all.push_back(&NcclReduction::reduce);
  if (options_.is_hierarchical) all.push_back(&NcclReduction::deliver);
  if (options_.delivers_results) all.push_back(&NcclReduction::collect);
  return all;
}

void NcclReduction::run() {
  std::vector<PipelineStage> pipeline;
  for (const Work work : stages()) {
    pipeline.push_back({static_cast<uint32_t>(pipeline.size()), [this, work](uint32_t step) { (this->*work)(step); }});
  }
  run_pipeline(static_cast<uint32_t>(plans_.size()), pipeline);
}

// After the kernel that has made what goes out. What arrives finds its place free: the slot's last step ended before.
void NcclReduction::start(size_t step, std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) {
  nccl_.workspace.to_wire();
  transfer(step, std::move(outgoing), std::move(incoming));
}

void NcclReduction::transfer(size_t step, std::vector<DeviceTransfer> outgoing, std::vector<DeviceTransfer> incoming) {
  nccl_.exchange(std::move(outgoing), std::move(incoming));
  arrived_[step % stages_] = nccl_.workspace.on_wire();
}

void NcclReduction::await(size_t step) { nccl_.workspace.from_wire(arrived_[step % stages_]); }

void NcclReduction::deposit(size_t step) {
  const Plan& plan = plans_[step];
  std::byte* memory = slot(step);
  DeviceWorkspace& workspace = nccl_.workspace;
  const PieceTable table = tables_[plan.deposit_table];
  if (table.count != 0) workspace.kernels().pack(workspace.stream(), options_.across.dtype, table, 1.0, memory);
  std::vector<DeviceTransfer> outgoing, incoming;
  for (int carrier = 0; carrier < place_.carriers; ++carrier) {
    const auto c = static_cast<size_t>(carrier);
    if (carrier != place_.local_rank) outgoing.push_back({place_.locals[c], memory + plan.deposit[c], plan.element_bytes[c]});
  }
  if (place_.carries()) {
    const size_t bytes = plan.element_bytes[static_cast<size_t>(place_.local_rank)];
    for (size_t r = 0; r < place_.locals.size(); ++r) {
      if (static_cast<int>(r) == place_.local_rank) continue;
      incoming.push_back({place_.locals[r], memory + plan.deposits + r * padded_for_gpu(bytes), bytes});
    }
  }
  start(step, std::move(outgoing), std::move(incoming));
}

void NcclReduction::make_contribution(size_t step) {
  const Plan& plan = plans_[step];
  DeviceWorkspace& workspace = nccl_.workspace;
  const PieceTable table = tables_[plan.contribute_table];
  if (table.count == 0) return;
  if (options_.is_hierarchical) {
    const size_t each = padded_for_gpu(plan.element_bytes[static_cast<size_t>(place_.local_rank)]);
    std::vector<const std::byte*> messages;
    for (size_t r = 0; r < place_.locals.size(); ++r) {
      messages.push_back(static_cast<int>(r) == place_.local_rank ? nullptr : slot(step) + plan.deposits + r * each);
    }
    DeviceReduction kernel = summing(options_.inside, {}, messages);
    kernel.result = slot(step);
    workspace.kernels().reduce(workspace.stream(), table, kernel);
  } else if (is_encoded()) {
    workspace.kernels().encode(workspace.stream(), codec_, options_.across.dtype, table, options_.across.prescale, slot(step));
  } else {
    workspace.kernels().pack(workspace.stream(), options_.across.dtype, table, 1.0, slot(step));
  }
}

void NcclReduction::contribute(size_t step) {
  if (options_.is_hierarchical) await(step);
  if (!place_.carries()) return;
  make_contribution(step);
  const Plan& plan = plans_[step];
  std::byte* memory = slot(step);
  std::vector<DeviceTransfer> outgoing, incoming;
  const size_t own_bytes = plan.message_bytes[at(place_.local_rank, place_.party)];
  for (int party = 0; party < place_.party_count; ++party) {
    if (party == place_.party) continue;
    const auto p = static_cast<size_t>(party);
    const int rank = place_.parties[p];
    if (options_.gather) {
      outgoing.push_back({rank, memory + plan.landing[at(place_.local_rank, place_.party)], own_bytes});
      incoming.push_back({rank, memory + plan.landing[at(place_.local_rank, party)], own_bytes});
    } else {
      outgoing.push_back({rank, memory + plan.sent[p], plan.message_bytes[at(place_.local_rank, party)]});
      incoming.push_back({rank, memory + plan.received + p * own_padded(plan), own_bytes});
    }
  }
  start(step, std::move(outgoing), std::move(incoming));
}

void NcclReduction::reduce(size_t step) {
  if (!place_.carries()) return;
  await(step);
  const Plan& plan = plans_[step];
  std::byte* memory = slot(step);
  std::vector<const std::byte*> messages;
  for (int party = 0; party < place_.party_count; ++party) {
    const auto p = static_cast<size_t>(party);
    messages.push_back(party != place_.party ? memory + plan.received + p * own_padded(plan)
                       : is_encoded()        ? memory + plan.sent[p]
                                             : nullptr);
  }
  DeviceReduction kernel = summing(options_.across, codec_, messages);
  kernel.to_destination = !is_encoded() || !options_.delivers_results;
  std::byte* result = nullptr;
  if (options_.delivers_results) result = memory + plan.landing[at(place_.local_rank, place_.party)];
  kernel.result = result;
  const PieceTable table = tables_[plan.reduce_table];
  DeviceWorkspace& workspace = nccl_.workspace;
  if (table.count != 0) workspace.kernels().reduce(workspace.stream(), table, kernel);
  if (!options_.delivers_results) return;
  std::vector<DeviceTransfer> outgoing, incoming;
  for (int party = 0; party < place_.party_count; ++party) {
    if (party == place_.party) continue;
    const int rank = place_.parties[static_cast<size_t>(party)];
    const size_t i = at(place_.local_rank, party);
    outgoing.push_back({rank, result, plan.message_bytes[at(place_.local_rank, place_.party)]});
    incoming.push_back({rank, memory + plan.landing[i], plan.message_bytes[i]});
  }
  start(step, std::move(outgoing), std::move(incoming));
}

void NcclReduction::deliver(size_t step) {
  const Plan& plan = plans_[step];
  std::vector<DeviceTransfer> outgoing, incoming;
  for (int carrier = 0; carrier < place_.carriers; ++carrier) {
    for (int party = 0; party < place_.party_count; ++party) {
      const size_t i = at(carrier, party);
      std::byte* message = slot(step) + plan.landing[i];
      if (carrier != place_.local_rank) {
        incoming.push_back({place_.locals[static_cast<size_t>(carrier)], message, plan.message_bytes[i]});
        continue;
      }
      for (const int rank : place_.locals) {
        if (rank != nccl_.rank()) outgoing.push_back({rank, message, plan.message_bytes[i]});
      }
    }
  }
  transfer(step, std::move(outgoing), std::move(incoming));  // of what the wire has brought, or waited for, before
}

void NcclReduction::collect(size_t step) {
  await(step);
  const Plan& plan = plans_[step];
  const PieceTable table = tables_[plan.collect_table];
  DeviceWorkspace& workspace = nccl_.workspace;
  if (table.count == 0) return;
  if (!options_.gather) {
    if (is_encoded()) {
      workspace.kernels().decode(workspace.stream(), codec_, options_.across.dtype, table, slot(step));
    } else {
      workspace.kernels().unpack(workspace.stream(), options_.across.dtype, table, 1.0, 1.0, slot(step));
    }
    return;
  }
  std::vector<const std::byte*> messages;
  for (int party = 0; party < place_.party_count; ++party) {
    messages.push_back(slot(step) + static_cast<size_t>(party) * plan.gather_stride);
  }
  DeviceReduction kernel = summing(options_.across, codec_, messages);
  kernel.to_destination = true;
  workspace.kernels().reduce(workspace.stream(), table, kernel);
}

}  // namespace hvd
