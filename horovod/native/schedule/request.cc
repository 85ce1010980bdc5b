#include "schedule/request.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace hvd {
namespace {

constexpr OperationKind kKinds[] = {
#define HVD_KIND(value, ...) {__VA_ARGS__},
    HVD_FOR_EACH_OPERATION(HVD_KIND)
#undef HVD_KIND
};

// Higher numbers are invalid.
constexpr auto kLastOperation = static_cast<Operation>(std::size(kKinds) - 1);
constexpr ResponseKind kLastResponseKind = ResponseKind::kShutdown;

void put(const Request& r, ByteWriter* out) {
  out->put(r.operation);
  out->put(r.op);
  out->put(r.prescale);
  out->put(r.postscale);
  out->put(r.root);
  out->put(r.follows);
  out->put(r.on_gpu);
  out->put(r.name);
  out->put(r.codec);
  out->put(r.dtypes);
  out->put(r.shapes);
  out->put(r.set);
  out->put(r.text);
}

// Checks the properties of tensors on which all code relies.
void check_tensors(const ByteReader& in, const Request& r) {
  auto refuse = [&](const std::string& what) {
    in.refuse("asks for " + std::string(name_of(r.operation)) + " of '" + r.name + "' with " + what);
  };
  const size_t count = r.shapes.size();
  if (r.dtypes.size() != count) refuse(std::to_string(r.dtypes.size()) + " dtypes of " + std::to_string(count) + " tensors");
  using Tensors = OperationKind::Tensors;
  const Tensors expected = kind_of(r.operation).tensors;
  if (expected == Tensors::kGroup ? count == 0 : count != (expected == Tensors::kOne ? 1 : 0)) {
    refuse(std::to_string(count) + " tensors");
  }
  int64_t total = 0;
  for (size_t t = 0; t < count; ++t) {
    // An empty dimension counts as 1, since sizes are also computed from some of the dimensions.
    auto bytes = static_cast<int64_t>(size_of(r.dtypes[t]));
    bool fits = true;
    for (const int64_t length : r.shapes[t]) {
      fits = fits && length >= 0 && !__builtin_mul_overflow(bytes, std::max<int64_t>(length, 1), &bytes);
    }
    if (!fits || __builtin_add_overflow(total, bytes, &total)) refuse("the shape " + to_text(r.shapes[t]));
  }
}

void get(ByteReader* in, Request* r) {
  in->get(&r->operation, kLastOperation);
  in->get(&r->op, kLastReduceOp);
  in->get(&r->prescale);
  in->get(&r->postscale);
  in->get(&r->root);
  in->get(&r->follows);
  in->get(&r->on_gpu);
  in->get(&r->name);
  in->get(&r->codec);
  r->dtypes.resize(in->get_count());
  for (DType& dtype : r->dtypes) in->get(&dtype, static_cast<DType>(kDTypeCount - 1));
  in->get(&r->shapes);
  in->get(&r->set);
  in->get(&r->text);
  check_tensors(*in, *r);
}

void put(const Item& item, ByteWriter* out) {
  out->put(item.id);
  out->put(item.name);
  out->put(item.assigned_id);
  out->put(item.rows);
  out->put(item.is_completed);
  out->put(item.request.has_value());
  if (item.request) put(*item.request, out);
}

void get(ByteReader* in, Item* item) {
  in->get(&item->id);
  in->get(&item->name);
  in->get(&item->assigned_id);
  in->get(&item->rows);
  for (const int64_t rows : item->rows) {
    if (rows < 0) in->refuse("says that '" + item->name + "' has " + std::to_string(rows) + " rows");
  }
  in->get(&item->is_completed);
  if (!in->get<bool>()) return;
  get(in, &item->request.emplace());
  const Operation operation = item->request->operation;
  if (operation != Operation::kAllreduce && operation != Operation::kTune) {
    in->refuse("has ranks that have joined take part in " + std::string(name_of(item->request->operation)));
  }
}

void put(const Announcement& announcement, ByteWriter* out);
void get(ByteReader* in, Announcement* announcement);
void put(const Response& response, ByteWriter* out);
void get(ByteReader* in, Response* response);

template <typename T>
void put_all(const std::vector<T>& all, ByteWriter* out) {
  out->put(static_cast<uint32_t>(all.size()));
  for (const T& one : all) put(one, out);
}

template <typename T>
void get_all(ByteReader* in, std::vector<T>* all) {
  const uint32_t count = in->get_count();
  for (uint32_t i = 0; i < count; ++i) get(in, &all->emplace_back());
}

void put(const Announcement& announcement, ByteWriter* out) {
  out->put(announcement.set);
  out->put(announcement.is_leaving);
  out->put(announcement.answers);
  out->put(announcement.ids);
  put_all(announcement.requests, out);
  out->put(announcement.places);
  out->put(announcement.is_begun);
  out->put(announcement.batches);
  out->put(announcement.blocked_on);
  out->put(announcement.may_yield);
  out->put(announcement.pass);
  out->put(announcement.no_pass_at);
}

void get(ByteReader* in, Announcement* announcement) {
  in->get(&announcement->set);
  in->get(&announcement->is_leaving);
  in->get(&announcement->answers);
  in->get(&announcement->ids);
  get_all(in, &announcement->requests);
  in->get(&announcement->places);
  in->get(&announcement->is_begun);
  in->get(&announcement->batches);
  in->get(&announcement->blocked_on);
  in->get(&announcement->may_yield);
  in->get(&announcement->pass);
  in->get(&announcement->no_pass_at);
  const std::vector<uint32_t>& ends = announcement->batches;
  bool is_right = announcement->is_begun != ends.empty();
  for (size_t i = 0; is_right && i < ends.size(); ++i) is_right = ends[i] > (i == 0 ? 0 : ends[i - 1]);
  if (is_right && !ends.empty()) is_right = ends.back() == announcement->ids.size() && announcement->requests.empty();
  if (!is_right) in->refuse("begins operations that cannot be");
}

void put(const Response& response, ByteWriter* out) {
  out->put(response.set);
  out->put(response.kind);
  put_all(response.items, out);
  out->put(response.ids);
  put(response.error, out);
}

void get(ByteReader* in, Response* response) {
  in->get(&response->set);
  in->get(&response->kind, kLastResponseKind);
  get_all(in, &response->items);
  in->get(&response->ids);
  get(in, &response->error);
  const bool is_on_items = response->kind == ResponseKind::kRun || response->kind == ResponseKind::kRelease ||
                           response->kind == ResponseKind::kAskOfPass;
  if (is_on_items && response->items.empty()) in->refuse("responds to nothing");
}

}  // namespace

const OperationKind& kind_of(Operation operation) { return kKinds[static_cast<size_t>(operation)]; }

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

std::vector<Announcement> read_announcements(std::span<const std::byte> bytes, int from) {
  ByteReader reader(bytes, from);
  std::vector<Announcement> announcements;
  get_all(&reader, &announcements);
  reader.end();
  return announcements;
}

std::span<const std::byte> write(const std::vector<Response>& responses, ByteWriter* writer) {
  put_all(responses, writer);
  return writer->bytes();
}

std::vector<Response> read_responses(std::span<const std::byte> bytes, int from) {
  ByteReader reader(bytes, from);
  std::vector<Response> responses;
  get_all(&reader, &responses);
  reader.end();
  return responses;
}

}  // namespace hvd
