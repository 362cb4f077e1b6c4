// CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of token files, checkpoint blocks and TensorBoard records.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace trainer {

// Continues `crc`, which is 0 before the first byte: crc32c(crc32c(0, a), b) == crc32c(0, a then b).
// Uses SSE4.2 where this CPU has it.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);

// The same from tables alone, on any CPU.
uint32_t crc32c_portable(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace trainer
