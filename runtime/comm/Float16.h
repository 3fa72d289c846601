// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The 16-bit floats as storage: converted to f32 to compute, rounded to nearest
// even on the way back (IEEE 754-2019, 4.3.1).
#ifndef PIPER_RUNTIME_COMM_FLOAT16_H
#define PIPER_RUNTIME_COMM_FLOAT16_H

#include <cstdint>
#include <cstring>

namespace piper::runtime {

inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t wide = bitsOf(value);
    uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    bool isNaN = (wide & 0x7fffffff) > 0x7f800000;
    bits = uint16_t(isNaN ? (wide >> 16) | 0x40 : rounded);
  }
  explicit operator float() const { return floatOf(uint32_t(bits) << 16); }
};

struct Float16 {
  uint16_t bits;

  Float16() = default;
  explicit Float16(float value) {
    uint32_t wide = bitsOf(value), sign = (wide >> 16) & 0x8000;
    uint32_t magnitude = wide & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      bits = uint16_t(sign | 0x7e00);
    } else if (magnitude >= 0x477ff000) { // Rounds to 2^16 or more.
      bits = uint16_t(sign | 0x7c00);
    } else if (magnitude >= 0x38800000) { // Normal.
      uint32_t odd = (magnitude >> 13) & 1;
      bits = uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
    } else {
      // Subnormal: the addition of 0.5 shifts the value to the last bits of the
      // significand and rounds it.
      float shifted = floatOf(magnitude) + 0.5f;
      bits = uint16_t(sign | (bitsOf(shifted) - 0x3f000000));
    }
  }
  explicit operator float() const {
    uint32_t sign = uint32_t(bits & 0x8000) << 16;
    uint32_t magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00)
      return floatOf(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
    if (magnitude >= 0x400)
      return floatOf(sign | ((magnitude << 13) + 0x38000000));
    float value = float(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
};

} // namespace piper::runtime

#endif // PIPER_RUNTIME_COMM_FLOAT16_H
