#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace hvd {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> data) {
  uint64_t rest = 0xffffffff;
  while (data.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, data.data(), sizeof word);
    rest = __builtin_ia32_crc32di(rest, word);
    data = data.subspan(sizeof word);
  }
  auto last = static_cast<uint32_t>(rest);
  for (const std::byte byte : data) last = __builtin_ia32_crc32qi(last, std::to_integer<uint8_t>(byte));
  return ~last;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> data) {
  uint32_t rest = 0xffffffff;
  for (const std::byte byte : data) rest = (rest >> 8) ^ kTable[(rest ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~rest;
}

uint32_t crc32c(std::span<const std::byte> data) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_by_instruction(data);
#endif
  return crc32c_by_table(data);
}

}  // namespace hvd
