#include "schedule/order_check.h"

#include <utility>

namespace hvd {
namespace {

bool is_alike(const OrderCheck::Place& place) {
  const std::string* first = nullptr;
  for (const std::string& name : place.names) {
    if (name.empty()) continue;
    if (first == nullptr) first = &name;
    if (name != *first) return false;
  }
  return true;
}

}  // namespace

void OrderCheck::add(size_t position, const std::string& name, bool is_begun) {
  const uint64_t number = next_[position]++ - first_;
  while (places_.size() <= number) places_.push_back({std::vector<std::string>(next_.size())});
  Place& place = places_[number];
  place.names[position] = name;
  ++place.count;
  place.is_begun |= is_begun;
}

std::vector<OrderCheck::Place> OrderCheck::take_differing() {
  std::vector<Place> differing;
  for (; !places_.empty() && places_.front().count == next_.size(); places_.pop_front(), ++first_) {
    if (!is_alike(places_.front())) differing.push_back(std::move(places_.front()));
  }
  for (const Place& place : places_) {
    if (place.is_begun && !is_alike(place)) differing.push_back(place);
  }
  return differing;
}

}  // namespace hvd
