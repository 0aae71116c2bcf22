#include "link/model/portions.h"

#include <algorithm>

#include "link/model/layouts.h"

namespace shardway::link {

std::map<int64_t, int64_t> piece_bytes(const Json& published, const Json& subscribed) {
  const DType before = dtype_named(published.at("dtype").get<std::string>());
  const DType after = dtype_named(subscribed.at("dtype").get<std::string>());
  const int64_t each = item_bytes(before) + (before == after ? 0 : item_bytes(after));
  const Layout layout = layout_of(subscribed, 0, after);
  std::map<int64_t, int64_t> found;
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    found[layout.mesh().ranks()[static_cast<size_t>(position)]] = each * layout.box_at(position).volume();
  return found;
}

int64_t PortionCounter::next(const Json& published, const Json& subscribed) {
  if (!subscribed.contains(kMaxBytes)) return 0;
  const auto pieces = piece_bytes(published, subscribed);
  const auto limit = subscribed.at(kMaxBytes).get<int64_t>();
  limit_ = std::min(limit_, limit);
  if (number_ == 0 || !fits(pieces)) {
    ++number_;
    held_.clear();
    limit_ = limit;
  }
  for (const auto& [rank, bytes] : pieces) held_[rank] += bytes;
  return number_;
}

bool PortionCounter::fits(const std::map<int64_t, int64_t>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const auto& piece) { return held_[piece.first] + piece.second <= limit_; });
}

}  // namespace shardway::link
