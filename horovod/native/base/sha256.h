// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace hvd {

using Digest = std::array<std::byte, 32>;
using Parts = std::initializer_list<std::span<const std::byte>>;

// Of the parts, one after the other.
Digest sha256(Parts parts);
Digest hmac_sha256(std::span<const std::byte> key, Parts parts);

// Takes the same time wherever the two differ.
bool are_equal(const Digest& a, const Digest& b);

}  // namespace hvd
