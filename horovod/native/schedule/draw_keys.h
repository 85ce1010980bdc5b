// Keys of the random numbers of stochastic codecs. Each reduction of a name has another key. Every run of a program has the
// same keys, independent of fusion and scheduling.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace hvd {

// Mixes two numbers into one that looks random.
constexpr uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15u * (b + 1);  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The key of reduction number `use` of `name`.
inline uint64_t draw_key(const std::string& name, uint64_t use) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a: std::hash may differ by build
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mixed(hash, use);
}

class DrawKeys {
 public:
  explicit DrawKeys(size_t most_names = 65536) : most_names_(most_names) {}

  // The key of the name's next reduction.
  uint64_t next(const std::string& name) {
    if (uses_.size() >= most_names_ && uses_.count(name) == 0) {
      uses_.clear();
      ++epoch_;
    }
    return mixed(draw_key(name, uses_[name]++), epoch_);
  }

 private:
  const size_t most_names_;  // then all are forgotten, so that scripts with ever new names do not fill memory
  uint64_t epoch_ = 0;       // how often that happened, so that keys do not repeat
  std::unordered_map<std::string, uint64_t> uses_;
};

}  // namespace hvd
