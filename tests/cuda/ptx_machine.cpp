#include "ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace shardway::test {
namespace {

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error("PTX: " + why); }

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// At the separator, but not inside braces.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

std::vector<std::string> listed(const std::string& operand) {
  if (operand.front() != '{') return {operand};
  return split(operand.substr(1, operand.size() - 2), ',');
}

int bits_of(const std::string& type) {
  if (type == "pred") return 1;
  return std::stoi(type.substr(1));
}

bool is_number(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0);
}

float from_half(uint64_t bits) {
  const auto exponent = static_cast<int>(bits >> 10 & 31);
  const auto fraction = static_cast<float>(bits & 1023);
  float size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  if (exponent == 31)
    size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  return (bits >> 15) != 0 ? -size : size;
}

uint64_t to_half(float number) {
  const uint64_t sign = std::signbit(number) ? 0x8000 : 0;
  const float size = std::fabs(number);
  if (std::isnan(number)) return 0x7fff;
  if (size >= 65520.0F) return sign | 0x7c00;
  if (size < std::ldexp(1.0F, -14)) return sign | static_cast<uint64_t>(std::nearbyint(std::ldexp(size, 24)));
  const int exponent = std::ilogb(size);
  const auto fraction =
      static_cast<uint64_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // 1024 … 2048
  return sign | ((static_cast<uint64_t>(exponent + 15) << 10) + (fraction - 1024));
}

template <class T>
T as(uint64_t bits) {
  T number;
  std::memcpy(&number, &bits, sizeof(T));
  return number;
}

template <class T>
uint64_t bits_in(T number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(T));
  return bits;
}

// Calls body with a number of the type's kind.
template <class Body>
auto typed(const std::string& type, Body&& body) {
  if (type == "f32") return body(float{});
  if (type == "f64") return body(double{});
  if (type == "s32") return body(int32_t{});
  if (type == "s64") return body(int64_t{});
  if (type == "u64" || type == "b64") return body(uint64_t{});
  if (type == "u32" || type == "b32") return body(uint32_t{});
  fail("type " + type);
}

template <class T>
T computed(const std::string& op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == "add") return a + b;
    if (op == "mul") return a * b;
    if (op == "div") return a / b;
  } else {
    using U = std::make_unsigned_t<T>;
    if (op == "add") return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    if (op == "sub") return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    if (op == "mul") return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    if (op == "div") return a / b;
    if (op == "min") return std::min(a, b);
    if (op == "max") return std::max(a, b);
    if (op == "and") return a & b;
    if (op == "or") return a | b;
    if (op == "shl") return static_cast<T>(static_cast<U>(a) << b);
    if (op == "shr") return static_cast<T>(a >> b);
  }
  fail("instruction " + op);
}

}  // namespace

PtxMachine::PtxMachine(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) parse(trimmed(line));
  for (const Instruction& in : instructions_) {
    if (in.name[0] == "bra" && !labels_.contains(in.operands[0])) fail("no label " + in.operands[0]);
  }
}

void PtxMachine::parse(std::string line) {
  const bool is_around = line.empty() || line.front() == '}' || line.starts_with(".v") ||
                         line.starts_with(".target") || line.starts_with(".address");
  if (is_around || line == "{") return;
  if (line.back() == ':') {
    labels_[line.substr(0, line.size() - 1)] = instructions_.size();
    return;
  }
  if (line.back() != ';') fail("no semicolon: " + line);
  line.pop_back();
  if (line.starts_with(".reg .")) {
    const size_t space = line.find(' ', 6);
    for (const std::string& name : split(line.substr(space), ',')) {
      if (!widths_.emplace(name, bits_of(line.substr(6, space - 6))).second) fail("declared twice: " + name);
    }
    return;
  }
  Instruction in{.guard = {}, .name = {}, .operands = {}, .line = line};
  if (line.front() == '@') {
    in.guard = line.substr(1, line.find(' ') - 1);
    line = trimmed(line.substr(line.find(' ')));
  }
  const size_t space = line.find(' ');
  in.name = split(line.substr(0, space), '.');
  if (space != std::string::npos) in.operands = split(line.substr(space), ',');
  instructions_.push_back(std::move(in));
}

uint64_t PtxMachine::value(const std::string& operand) const {
  if (operand == "table") return 0;
  if (operand.front() == '%') return places_.at(operand);
  if (is_number(operand)) return std::stoull(operand, nullptr, 0);
  const auto found = registers_.find(operand);
  if (found != registers_.end()) return found->second;
  if (!widths_.contains(operand)) fail("not declared: " + operand);
  return 0xbad;  // a unit that is not there is not loaded, but its registers are worked on
}

uint64_t PtxMachine::address(const std::string& operand) const {
  uint64_t sum = 0;
  for (const std::string& part : split(operand.substr(1, operand.size() - 2), '+')) sum += value(part);
  return sum;
}

void PtxMachine::set(const std::string& name, uint64_t bits) {
  const auto width = widths_.find(name);
  if (width == widths_.end()) fail("not declared: " + name);
  registers_[name] = width->second == 64 ? bits : bits & ((uint64_t{1} << width->second) - 1);
}

void PtxMachine::run(const Grid& grid, std::span<const std::byte> parameter) {
  for (uint32_t row = 0; row < grid.rows; ++row) {
    for (uint32_t block = 0; block < grid.blocks; ++block) {
      for (uint32_t thread = 0; thread < grid.threads; ++thread) {
        places_ = {{"%ctaid.x", block},
                   {"%ctaid.y", row},
                   {"%tid.x", thread},
                   {"%nctaid.x", grid.blocks},
                   {"%ntid.x", grid.threads}};
        run_thread(parameter);
      }
    }
  }
}

void PtxMachine::run_thread(std::span<const std::byte> parameter) {
  registers_.clear();
  size_t at = 0;
  while (at < instructions_.size()) {
    const Instruction& in = instructions_[at++];
    if (!in.guard.empty() && value(in.guard) == 0) continue;
    if (in.name[0] == "ret") return;
    if (in.name[0] == "bra") {
      at = labels_.at(in.operands[0]);
    } else {
      step(in, parameter);
    }
  }
  fail("the end was passed");
}

void PtxMachine::step(const Instruction& in, std::span<const std::byte> parameter) {
  const std::string& name = in.name[0];
  if (name == "mov") return move(in);
  if (name == "ld") return load(in, parameter);
  if (name == "st") return store(in);
  if (name == "cvt") return convert(in);
  if (name == "setp") return compare(in);
  compute(in);
}

void PtxMachine::move(const Instruction& in) {
  const std::vector<std::string> targets = listed(in.operands[0]);
  const uint64_t bits = value(in.operands[1]);
  if (targets.size() == 1) return set(targets[0], bits);
  set(targets[0], bits & 0xffff);
  set(targets[1], bits >> 16);
}

void PtxMachine::load(const Instruction& in, std::span<const std::byte> parameter) {
  const auto bytes = static_cast<size_t>(bits_of(in.name.back()) / 8);
  const uint64_t from = address(in.operands[1]);
  uint64_t offset = 0;
  const std::vector<std::string> targets = listed(in.operands[0]);
  if (in.name[1] != "param" && from % (bytes * targets.size()) != 0) fail("misaligned: " + in.line);
  for (const std::string& target : targets) {
    uint64_t bits = 0;
    if (in.name[1] == "param") {
      if (from + bytes > parameter.size()) fail("outside the parameter: " + in.line);
      std::memcpy(&bits, parameter.data() + from, bytes);
    } else {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): a kernel has numbers for addresses
      std::memcpy(&bits, reinterpret_cast<const void*>(from + offset), bytes);
    }
    set(target, bits);
    offset += bytes;
  }
}

void PtxMachine::store(const Instruction& in) {
  const auto bytes = static_cast<size_t>(bits_of(in.name.back()) / 8);
  uint64_t to = address(in.operands[0]);
  const std::vector<std::string> sources = listed(in.operands[1]);
  if (to % (bytes * sources.size()) != 0) fail("misaligned: " + in.line);
  for (const std::string& source : sources) {
    const uint64_t bits = value(source);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a kernel has numbers for addresses
    std::memcpy(reinterpret_cast<void*>(to), &bits, bytes);
    to += bytes;
  }
}

void PtxMachine::convert(const Instruction& in) {
  const uint64_t bits = value(in.operands[1]);
  if (in.name == std::vector<std::string>{"cvt", "f32", "f16"})
    return set(in.operands[0], bits_in(from_half(bits)));
  if (in.name == std::vector<std::string>{"cvt", "rn", "f16", "f32"})
    return set(in.operands[0], to_half(as<float>(bits)));
  set(in.operands[0], bits);  // from a narrower unsigned number
}

void PtxMachine::compare(const Instruction& in) {
  const std::string& how = in.name[1];
  const bool holds = typed(in.name[2], [&]<class T>(T) {
    const T a = as<T>(value(in.operands[1]));
    const T b = as<T>(value(in.operands[2]));
    if (how == "nan") return a != a || b != b;
    if (how == "lt") return a < b;
    if (how == "gt") return a > b;
    if (how == "ge") return a >= b;
    if (how == "eq") return a == b;
    fail("comparison " + how);
  });
  set(in.operands[0], holds ? 1 : 0);
}

void PtxMachine::compute(const Instruction& in) {
  const std::string& name = in.name[0];
  std::vector<uint64_t> from;
  for (size_t i = 1; i < in.operands.size(); ++i) from.push_back(value(in.operands[i]));
  if (name == "selp") return set(in.operands[0], from[2] != 0 ? from[0] : from[1]);
  if (name == "bfi") {
    const uint64_t mask = ((uint64_t{1} << from[3]) - 1) << from[2];
    return set(in.operands[0], (from[1] & ~mask) | ((from[0] << from[2]) & mask));
  }
  if (name == "bfe") {
    const uint64_t field = from[0] >> from[1] & ((uint64_t{1} << from[2]) - 1);
    const bool is_negative = in.name[1] == "s32" && (field >> (from[2] - 1)) != 0;
    return set(in.operands[0], is_negative ? field | ~uint64_t{0} << from[2] : field);
  }
  if (name == "mul" && in.name[1] == "wide") return set(in.operands[0], from[0] * from[1]);
  set(in.operands[0], typed(in.name.back(), [&]<class T>(T) {
        if (name != "mad") return bits_in(computed<T>(name, as<T>(from[0]), as<T>(from[1])));
        return bits_in(
            computed<T>("add", computed<T>("mul", as<T>(from[0]), as<T>(from[1])), as<T>(from[2])));
      }));
}

}  // namespace shardway::test
