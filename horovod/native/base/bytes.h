// Writing and reading messages: fixed-width little-endian numbers, strings with a length before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace hvd {

class ByteWriter {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void put(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  template <typename T>
  void put(const std::vector<T>& items) {
    put(static_cast<uint32_t>(items.size()));
    for (const T& item : items) put(item);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void get(T* value) {
    std::memcpy(value, take(sizeof *value), sizeof *value);
  }
  void get(std::string* text) {
    const auto length = get<uint32_t>();
    text->assign(reinterpret_cast<const char*>(take(length)), length);
  }
  template <typename T>
  void get(std::vector<T>* items) {
    const auto count = get<uint32_t>();
    items->clear();
    for (uint32_t i = 0; i < count; ++i) get(&items->emplace_back());
  }
  template <typename T>
  T get() {
    T value;
    get(&value);
    return value;
  }

 private:
  const std::byte* take(size_t count) {
    if (count > bytes_.size()) throw InternalError("a negotiation message is cut short: the ranks run different builds");
    const std::byte* start = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return start;
  }
  std::span<const std::byte> bytes_;
};

}  // namespace hvd
