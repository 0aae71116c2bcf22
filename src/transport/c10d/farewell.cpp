#include "transport/c10d/farewell.h"

#include <algorithm>
#include <cstring>

namespace shardway {
namespace {

// As it lies in memory: ranks of one group run on machines of one kind.
struct FarewellHead {
  uint8_t kind = 0;
  std::array<uint8_t, 3> unused = {};
  uint32_t text_bytes = 0;
  int64_t cause = 0;
};

constexpr size_t kMostText = kFarewellBytes - sizeof(FarewellHead);

bool is_readable(unsigned char c) { return c >= 0x20 && c != 0x7f; }

}  // namespace

FarewellBytes bytes_of(const Farewell& farewell) {
  FarewellBytes bytes{};
  const size_t length = std::min(farewell.why.size(), kMostText);
  const FarewellHead head{.kind = static_cast<uint8_t>(farewell.kind),
                          .text_bytes = static_cast<uint32_t>(length),
                          .cause = farewell.cause};
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), farewell.why.data(), length);
  return bytes;
}

std::optional<Farewell> farewell_in(std::span<const uint8_t> bytes, int64_t ranks) {
  if (bytes.size() != kFarewellBytes) return std::nullopt;
  FarewellHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto kind = static_cast<Farewell::Kind>(head.kind);
  const bool is_kind = kind == Farewell::Kind::left || kind == Farewell::Kind::gave_up;
  if (!is_kind || head.text_bytes > kMostText || head.cause < 0 || head.cause >= ranks) return std::nullopt;
  const auto text = bytes.subspan(sizeof(head), head.text_bytes);
  Farewell farewell{.kind = kind, .cause = head.cause, .why = {text.begin(), text.end()}};
  std::replace_if(
      farewell.why.begin(), farewell.why.end(), [](unsigned char c) { return !is_readable(c); }, ' ');
  return farewell;
}

}  // namespace shardway
