// CRC-32C (Castagnoli), as iSCSI and many file systems use it: by the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

uint32_t crc32c(std::span<const std::byte> data);
uint32_t crc32c_by_table(std::span<const std::byte> data);  // the definition

}  // namespace hvd
