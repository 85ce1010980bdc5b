#include "schedule/order_check.h"

#include <utility>

namespace hvd {
void OrderCheck::add(size_t position, const std::string& name, bool is_begun) {
  const uint64_t number = next_[position]++ - first_;
  while (places_.size() <= number) places_.push_back({std::vector<std::string>(next_.size())});
  Place& place = places_[number];
  for (const std::string& other : place.names) {
    if (other.empty() || name.empty()) continue;
    place.differs |= other != name;
    break;  // the others are like that, or the place differs already
  }
  place.names[position] = name;
  ++place.count;
  place.is_begun |= is_begun;
}

std::vector<OrderCheck::Place> OrderCheck::take_differing() {
  std::vector<Place> differing;
  for (; !places_.empty() && places_.front().count == next_.size(); places_.pop_front(), ++first_) {
    if (places_.front().differs) differing.push_back(std::move(places_.front()));
  }
  for (const Place& place : places_) {
    if (place.is_begun && place.differs) differing.push_back(place);
  }
  return differing;
}

}  // namespace hvd
