#include "schedule/order_check.h"

#include <utility>

namespace hvd {

void OrderCheck::add(size_t position, const std::string& name) {
  const uint64_t number = next_[position]++ - first_;
  while (places_.size() <= number) places_.push_back({Names(next_.size()), 0});
  places_[number].names[position] = name;
  ++places_[number].count;
}

std::vector<OrderCheck::Names> OrderCheck::take_differing() {
  std::vector<Names> differing;
  for (; !places_.empty() && places_.front().count == next_.size(); places_.pop_front(), ++first_) {
    Names& names = places_.front().names;
    const std::string* first = nullptr;
    bool is_alike = true;
    for (const std::string& name : names) {
      if (name.empty()) continue;
      if (first == nullptr) first = &name;
      is_alike = is_alike && name == *first;
    }
    if (!is_alike) differing.push_back(std::move(names));
  }
  return differing;
}

}  // namespace hvd
