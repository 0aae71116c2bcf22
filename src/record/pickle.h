// Writes values in Python's pickle format, protocol 2: as much of it as a record needs.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace shardway::record {

// The values of a list stand between begin_list and end_list, those of a dict, each key before its value,
// between begin_dict and end_dict.
class PickleWriter {
 public:
  void none() { bytes_ += 'N'; }
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }

  void integer(int64_t value) {
    bytes_ += "\x8a\x08";  // a long of 8 bytes
    put(static_cast<uint64_t>(value), 8);
  }

  void real(double value) {
    bytes_ += 'G';
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }

  void text(std::string_view utf8) {
    bytes_ += 'X';
    put(utf8.size(), 4);
    bytes_ += utf8;
  }

  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }

  // The two values that were written last become one.
  void pair_of_last() { bytes_ += '\x86'; }

  std::string finished() && { return std::move(bytes_) + '.'; }

 private:
  // The lowest byte first.
  void put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> 8 * i & 0xff);
  }

  std::string bytes_ = "\x80\x02";
};

}  // namespace shardway::record
