#include "schedule/request.h"

#include <algorithm>
#include <numeric>

namespace hvd {
namespace {

void put(const Request& r, ByteWriter* out) {
  out->put(r.operation);
  out->put(r.op);
  out->put(r.prescale);
  out->put(r.postscale);
  out->put(r.root);
  out->put(r.on_gpu);
  out->put(r.name);
  out->put(r.codec);
  out->put(r.dtypes);
  out->put(r.shapes);
  out->put(r.set);
}

void get(ByteReader* in, Request* r) {
  in->get(&r->operation);
  in->get(&r->op);
  in->get(&r->prescale);
  in->get(&r->postscale);
  in->get(&r->root);
  in->get(&r->on_gpu);
  in->get(&r->name);
  in->get(&r->codec);
  in->get(&r->dtypes);
  in->get(&r->shapes);
  in->get(&r->set);
}

void put(const Item& item, ByteWriter* out) {
  out->put(item.id);
  out->put(item.name);
  out->put(item.assigned_id);
  out->put(item.rows);
  out->put(item.request.has_value());
  if (item.request) put(*item.request, out);
}

void get(ByteReader* in, Item* item) {
  in->get(&item->id);
  in->get(&item->name);
  in->get(&item->assigned_id);
  in->get(&item->rows);
  if (in->get<bool>()) get(in, &item->request.emplace());
}

void put(const Announcement& announcement, ByteWriter* out);
void get(ByteReader* in, Announcement* announcement);
void put(const Verdict& verdict, ByteWriter* out);
void get(ByteReader* in, Verdict* verdict);

template <typename T>
void put_all(const std::vector<T>& all, ByteWriter* out) {
  out->put(static_cast<uint32_t>(all.size()));
  for (const T& one : all) put(one, out);
}

template <typename T>
void get_all(ByteReader* in, std::vector<T>* all) {
  const auto count = in->get<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) get(in, &all->emplace_back());
}

void put(const Announcement& announcement, ByteWriter* out) {
  out->put(announcement.set);
  out->put(announcement.is_leaving);
  out->put(announcement.answers);
  out->put(announcement.ids);
  put_all(announcement.requests, out);
}

void get(ByteReader* in, Announcement* announcement) {
  in->get(&announcement->set);
  in->get(&announcement->is_leaving);
  in->get(&announcement->answers);
  in->get(&announcement->ids);
  get_all(in, &announcement->requests);
}

void put(const Verdict& verdict, ByteWriter* out) {
  out->put(verdict.set);
  out->put(verdict.kind);
  put_all(verdict.items, out);
  out->put(verdict.ids);
  out->put(verdict.error);
}

void get(ByteReader* in, Verdict* verdict) {
  in->get(&verdict->set);
  in->get(&verdict->kind);
  get_all(in, &verdict->items);
  in->get(&verdict->ids);
  in->get(&verdict->error);
}

}  // namespace

std::string_view name_of(Operation operation) {
  constexpr std::string_view kNames[] = {"ALLREDUCE", "ALLGATHER", "BROADCAST",       "ALLTOALL",          "REDUCESCATTER",
                                         "BARRIER",   "JOIN",      "ADD_PROCESS_SET", "REMOVE_PROCESS_SET"};
  return kNames[static_cast<int>(operation)];
}

bool is_repeated(Operation operation) { return operation < Operation::kBarrier; }

int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string to_text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

int64_t Request::bytes_of(size_t tensor) const {
  return element_count(shapes[tensor]) * static_cast<int64_t>(size_of(dtypes[tensor]));
}

int64_t Request::bytes() const {
  int64_t bytes = 0;
  for (size_t t = 0; t < shapes.size(); ++t) bytes += bytes_of(t);
  return bytes;
}

int64_t Request::row_bytes_of(size_t tensor) const {
  const Shape& shape = shapes[tensor];
  return element_count({shape.begin() + 1, shape.end()}) * static_cast<int64_t>(size_of(dtypes[tensor]));
}

bool Request::has_one_dtype() const {
  return std::all_of(dtypes.begin(), dtypes.end(), [&](DType dtype) { return dtype == dtypes.front(); });
}

std::span<const std::byte> write(const std::vector<Announcement>& announcements, ByteWriter* writer) {
  put_all(announcements, writer);
  return writer->bytes();
}

std::vector<Announcement> read_announcements(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<Announcement> announcements;
  get_all(&reader, &announcements);
  return announcements;
}

std::span<const std::byte> write(const std::vector<Verdict>& verdicts, ByteWriter* writer) {
  put_all(verdicts, writer);
  return writer->bytes();
}

std::vector<Verdict> read_verdicts(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<Verdict> verdicts;
  get_all(&reader, &verdicts);
  return verdicts;
}

}  // namespace hvd
