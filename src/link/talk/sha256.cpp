#include "link/talk/sha256.h"

#include <algorithm>
#include <bit>

namespace shardway::link {
namespace {

constexpr size_t kBlockBytes = 64;

constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using HashState = std::array<uint32_t, 8>;

constexpr HashState kFirstState = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t word_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

std::array<uint32_t, 64> schedule_of(const uint8_t* block) {
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < 16; ++i) words[i] = word_at(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    const uint32_t mixed_a = std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3);
    const uint32_t mixed_b = std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10);
    words[i] = words[i - 16] + mixed_a + words[i - 7] + mixed_b;
  }
  return words;
}

void take_block(HashState& state, const uint8_t* block) {
  const auto words = schedule_of(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t chosen = (e & f) ^ (~e & g);
    const uint32_t most = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t mixed_e = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t mixed_a = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t first = h + mixed_e + chosen + kRoundConstants[i] + words[i];
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + mixed_a + most;
  }
  const HashState mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

// The message, a one bit, zeros, and the length in bits, as whole blocks.
std::string padded(std::string_view message) {
  std::string text(message);
  const uint64_t bits = uint64_t{message.size()} * 8;
  text += '\x80';
  while (text.size() % kBlockBytes != kBlockBytes - 8) text += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift & 0xff);
  return text;
}

std::string text_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

}  // namespace

Digest sha256(std::string_view message) {
  const std::string text = padded(message);
  HashState state = kFirstState;
  for (size_t i = 0; i < text.size(); i += kBlockBytes)
    take_block(state, reinterpret_cast<const uint8_t*>(text.data()) + i);
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::string inner(key.size() > kBlockBytes ? text_of(sha256(key)) : std::string(key));
  inner.resize(kBlockBytes, '\0');
  std::string outer = inner;
  for (char& letter : inner) letter = static_cast<char>(letter ^ 0x36);
  for (char& letter : outer) letter = static_cast<char>(letter ^ 0x5c);
  return sha256(outer + text_of(sha256(inner + std::string(message))));
}

std::string hex_of(const uint8_t* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace shardway::link
