// Keys of the random numbers by which stochastic codecs round: a different one each time a name is reduced, and the same
// ones in every run of a program, whatever is fused with what and whenever its turn comes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace hvd {

// A number that looks random, of two that do not.
constexpr uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15u * (b + 1);  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Of the time number `use` that `name` is reduced.
inline uint64_t draw_key(const std::string& name, uint64_t use) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a: std::hash may differ by build
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mixed(hash, use);
}

class DrawKeys {
 public:
  explicit DrawKeys(size_t most_names = 65536) : most_names_(most_names) {}

  // The key of the next reduction under a name.
  uint64_t next(const std::string& name) {
    if (uses_.size() >= most_names_ && uses_.count(name) == 0) {
      uses_.clear();
      ++epoch_;
    }
    return mixed(draw_key(name, uses_[name]++), epoch_);
  }

 private:
  const size_t most_names_;  // then all are forgotten: scripts that invent names for ever must not fill memory
  uint64_t epoch_ = 0;       // how often that happened, so that no key comes again
  std::unordered_map<std::string, uint64_t> uses_;
};

}  // namespace hvd
