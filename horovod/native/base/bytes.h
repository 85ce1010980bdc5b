// Writing and reading messages: fixed-width little-endian numbers, strings with a length before them.
//
// A ByteReader, of a message `from` a rank, throws InternalError for what no ByteWriter writes, and takes no memory for what is not there.
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
  ByteReader(std::span<const std::byte> bytes, int from) : from_(from), bytes_(bytes) {}

  // "rank 1 sent a message that " + what
  [[noreturn]] void refuse(const std::string& what) const {
    throw InternalError("rank " + std::to_string(from_) + " sent a message that " + what +
                        ". The ranks run different builds, or it was damaged on its way; install the same build everywhere");
  }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void get(T* value) {
    std::memcpy(value, take(sizeof *value), sizeof *value);
  }
  void get(bool* truth) {
    const auto value = get<uint8_t>();
    if (value > 1) refuse("has " + std::to_string(value) + " for a truth value");
    *truth = value == 1;
  }
  // An enumerator up to the last one that there is.
  template <typename T>
    requires std::is_enum_v<T>
  void get(T* value, T last) {
    get(value);
    if (*value > last) refuse("has the number " + std::to_string(static_cast<int>(*value)) + ", which stands for nothing");
  }
  void get(std::string* text) {
    const auto length = get<uint32_t>();
    text->assign(reinterpret_cast<const char*>(take(length)), length);
  }
  template <typename T>
  void get(std::vector<T>* items) {
    const uint32_t count = get_count();
    items->clear();
    for (uint32_t i = 0; i < count; ++i) get(&items->emplace_back());
  }
  uint32_t get_count() {  // of items that follow, each of a byte or more
    const auto count = get<uint32_t>();
    if (count > bytes_.size()) refuse("is cut short");
    return count;
  }
  void end() const {  // everything must have been read
    if (!bytes_.empty()) refuse("has " + std::to_string(bytes_.size()) + " bytes more than it should");
  }
  template <typename T>
  T get() {
    T value{};
    get(&value);
    return value;
  }

 private:
  const std::byte* take(size_t count) {
    if (count > bytes_.size()) refuse("is cut short");
    const std::byte* start = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return start;
  }
  const int from_;
  std::span<const std::byte> bytes_;
};

}  // namespace hvd
