#include "kernels/cpu/linear_layout.h"

#include <cstring>

namespace snug::kernels::cpu {
namespace {

using quant::Format;

std::uint16_t load16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// 16 bytes: element i in the low half, element i + 16 in the high half.
void split_nibbles(const std::uint8_t* source, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = source[i] & 15;
    q[i + 16] = source[i] >> 4;
  }
}

void add_fifth_bits(const std::uint8_t* high, std::uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= static_cast<std::uint8_t>(((high[i / 8] >> (i % 8)) & 1) << 4);
}

// The 12 bytes that hold eight 6-bit scales and eight 6-bit minimums (q4_k, q5_k).
void unpack_scales_k4(const std::uint8_t* s, UnpackedUnit& u) {
  for (int i = 0; i < 4; ++i) {
    u.scales[i] = s[i] & 63;
    u.mins[i] = s[i + 4] & 63;
    u.scales[i + 4] = static_cast<std::uint8_t>((s[i + 8] & 15) | ((s[i] >> 6) << 4));
    u.mins[i + 4] = static_cast<std::uint8_t>((s[i + 8] >> 4) | ((s[i + 4] >> 6) << 4));
  }
}

void unpack_q2_k(const std::uint8_t* p, UnpackedUnit& u) {
  for (int i = 0; i < 16; ++i) {
    u.scales[i] = p[i] & 15;
    u.mins[i] = p[i] >> 4;
  }
  for (int sub = 0; sub < 8; ++sub) {
    const std::uint8_t* source = p + 16 + 32 * (sub / 4);
    for (int i = 0; i < 32; ++i) u.q[32 * sub + i] = (source[i] >> (2 * (sub % 4))) & 3;
  }
  u.d = load16(p + 80);
  u.m = load16(p + 82);
}

void unpack_q3_k(const std::uint8_t* p, UnpackedUnit& u) {
  for (int sub = 0; sub < 8; ++sub) {
    const std::uint8_t* source = p + 32 + 32 * (sub / 4);
    for (int i = 0; i < 32; ++i) {
      u.q[32 * sub + i] =
          static_cast<std::uint8_t>(((source[i] >> (2 * (sub % 4))) & 3) | (((p[i] >> sub) & 1) << 2));
    }
  }
  const std::uint8_t* s = p + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    const int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
    u.scales[i] = static_cast<std::uint8_t>((low | (high << 4)) - 32);
  }
  u.d = load16(p + 108);
}

void unpack_q4_k(const std::uint8_t* p, UnpackedUnit& u) {
  u.d = load16(p);
  u.m = load16(p + 2);
  unpack_scales_k4(p + 4, u);
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 32; ++i) {
      u.q[64 * g + i] = p[16 + 32 * g + i] & 15;
      u.q[64 * g + 32 + i] = p[16 + 32 * g + i] >> 4;
    }
  }
}

void unpack_q5_k(const std::uint8_t* p, UnpackedUnit& u) {
  u.d = load16(p);
  u.m = load16(p + 2);
  unpack_scales_k4(p + 4, u);
  const std::uint8_t* high = p + 16;
  const std::uint8_t* low = p + 48;
  for (int g = 0; g < 4; ++g) {
    for (int i = 0; i < 32; ++i) {
      const int b = low[32 * g + i];
      u.q[64 * g + i] = static_cast<std::uint8_t>((b & 15) | (((high[i] >> (2 * g)) & 1) << 4));
      u.q[64 * g + 32 + i] = static_cast<std::uint8_t>((b >> 4) | (((high[i] >> (2 * g + 1)) & 1) << 4));
    }
  }
}

void unpack_q6_k(const std::uint8_t* p, UnpackedUnit& u) {
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* low = p + 64 * half;
    const std::uint8_t* high = p + 128 + 32 * half;
    std::uint8_t* q = u.q + 128 * half;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<std::uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      q[i + 32] = static_cast<std::uint8_t>((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4));
      q[i + 64] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
      q[i + 96] = static_cast<std::uint8_t>((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
    }
  }
  std::memcpy(u.scales, p + 192, 16);
  u.d = load16(p + 208);
}

void unpack_iq4_xs(const std::uint8_t* p, UnpackedUnit& u) {
  u.d = load16(p);
  const int high = load16(p + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const int scale = ((p[4 + sub / 2] >> (4 * (sub % 2))) & 15) | (((high >> (2 * sub)) & 3) << 4);
    u.scales[sub] = static_cast<std::uint8_t>(scale - 32);
    split_nibbles(p + 8 + 16 * sub, u.q + 32 * sub);
  }
}

void write_words(const std::uint8_t* bytes, int words, int panel_rows, int row, std::uint8_t* plane) {
  for (int j = 0; j < words; ++j) std::memcpy(plane + 4 * (j * panel_rows + row), bytes + 4 * j, 4);
}

void join_nibbles(const std::uint8_t* q, std::uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + 16] << 4));
}

// Bits [shift, shift + 2) of 32 codes into 8 bytes.
void join_pairs(const std::uint8_t* q, int shift, std::uint8_t* out) {
  for (int h = 0; h < 2; ++h) {
    for (int b = 0; b < 4; ++b) {
      int byte = 0;
      for (int s = 0; s < 4; ++s) byte |= ((q[16 * h + 4 * s + b] >> shift) & 3) << (2 * s);
      out[4 * h + b] = static_cast<std::uint8_t>(byte);
    }
  }
}

// Bit `shift` of 32 codes into 4 bytes.
void join_bits(const std::uint8_t* q, int shift, std::uint8_t* out) {
  for (int b = 0; b < 4; ++b) {
    int byte = 0;
    for (int s = 0; s < 8; ++s) byte |= ((q[4 * s + b] >> shift) & 1) << s;
    out[b] = static_cast<std::uint8_t>(byte);
  }
}

void write_planes(Codes codes, const std::uint8_t* q, int panel_rows, int row, std::uint8_t* plane) {
  std::uint8_t bytes[32];
  int used = 0;
  switch (codes) {
    case Codes::none:
      break;
    case Codes::s8:
      std::memcpy(bytes, q, 32);
      used = 8;
      break;
    case Codes::u2:
    case Codes::u3:
      join_pairs(q, 0, bytes);
      used = 2;
      if (codes == Codes::u3) {
        join_bits(q, 2, bytes + 8);
        used = 3;
      }
      break;
    case Codes::u4:
    case Codes::iq4:
    case Codes::u5:
    case Codes::u6:
      join_nibbles(q, bytes);
      used = 4;
      if (codes == Codes::u5) {
        join_bits(q, 4, bytes + 16);
        used = 5;
      } else if (codes == Codes::u6) {
        join_pairs(q, 4, bytes + 16);
        used = 6;
      }
      break;
  }
  write_words(bytes, used, panel_rows, row, plane);
}

}  // namespace

void unpack_unit(Format format, const std::uint8_t* p, UnpackedUnit& u) {
  switch (format) {
    case Format::q4_0:
    case Format::iq4_nl:
      u.d = load16(p);
      split_nibbles(p + 2, u.q);
      break;
    case Format::q4_1:
      u.d = load16(p);
      u.m = load16(p + 2);
      split_nibbles(p + 4, u.q);
      break;
    case Format::q5_0:
      u.d = load16(p);
      split_nibbles(p + 6, u.q);
      add_fifth_bits(p + 2, u.q);
      break;
    case Format::q5_1:
      u.d = load16(p);
      u.m = load16(p + 2);
      split_nibbles(p + 8, u.q);
      add_fifth_bits(p + 4, u.q);
      break;
    case Format::q8_0:
      u.d = load16(p);
      std::memcpy(u.q, p + 2, 32);
      break;
    case Format::q2_k:
      unpack_q2_k(p, u);
      break;
    case Format::q3_k:
      unpack_q3_k(p, u);
      break;
    case Format::q4_k:
      unpack_q4_k(p, u);
      break;
    case Format::q5_k:
      unpack_q5_k(p, u);
      break;
    case Format::q6_k:
      unpack_q6_k(p, u);
      break;
    case Format::iq4_xs:
      unpack_iq4_xs(p, u);
      break;
    case Format::f32:
    case Format::f16:
    case Format::bf16:
      break;
  }
}

void write_unit(const PackedFormat& format, const UnpackedUnit& unit, int panel_rows, int row,
                std::uint8_t* packed) {
  std::memcpy(packed + 2 * row, &unit.d, 2);
  if (format.headers == 2) std::memcpy(packed + 2 * (panel_rows + row), &unit.m, 2);
  std::uint8_t* sub = packed + format.header_bytes(panel_rows);
  for (int s = 0; s < format.subs; ++s, sub += format.sub_bytes(panel_rows)) {
    std::uint8_t* p = sub;
    for (int i = 0; i < format.scales_per_sub; ++i, p += panel_rows) {
      p[row] = unit.scales[s * format.scales_per_sub + i];
    }
    for (int i = 0; i < format.mins_per_sub; ++i, p += panel_rows) {
      p[row] = unit.mins[s * format.mins_per_sub + i];
    }
    write_planes(format.codes, unit.q + 32 * s, panel_rows, row, p);
  }
}

}  // namespace snug::kernels::cpu
