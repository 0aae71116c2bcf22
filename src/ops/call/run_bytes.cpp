#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "plan/geometry/number_text.h"
#include "shardway/prepare.h"

namespace shardway {
namespace {

// More ranks than this are told without the bytes of each pair.
constexpr int64_t kMostInTable = 16;

std::string ratio_text(int64_t bytes, int64_t least) {
  if (bytes == least) return "the least possible";
  std::ostringstream text;
  text << "at least " << in_bytes(least) << " must";
  if (least > 0)
    text << ", so it is " << std::fixed << std::setprecision(2)
         << static_cast<double>(bytes) / static_cast<double>(least) << " times the least";
  return text.str();
}

std::string table_text(const RunBytes& bytes) {
  std::ostringstream text;
  text << "from \\ to";
  for (int64_t to = 0; to < bytes.ranks; ++to) text << std::setw(12) << to;
  text << '\n';
  for (int64_t from = 0; from < bytes.ranks; ++from) {
    text << std::setw(9) << from;
    for (int64_t to = 0; to < bytes.ranks; ++to) {
      const int64_t sent = bytes.sent[static_cast<size_t>(from * bytes.ranks + to)];
      text << std::setw(12) << (sent == 0 ? "-" : in_bytes(sent));
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace

int64_t RunBytes::sent_by(int64_t rank) const {
  if (sent.empty()) return 0;
  const auto row = sent.begin() + rank * ranks;
  return std::accumulate(row, row + ranks, int64_t{0});
}

int64_t RunBytes::received_by(int64_t rank) const {
  if (sent.empty()) return 0;
  int64_t bytes = 0;
  for (int64_t from = 0; from < ranks; ++from) bytes += sent[static_cast<size_t>(from * ranks + rank)];
  return bytes;
}

int64_t RunBytes::total() const { return std::accumulate(sent.begin(), sent.end(), int64_t{0}); }

int64_t RunBytes::least_total() const { return std::accumulate(least.begin(), least.end(), int64_t{0}); }

int64_t RunBytes::busiest_rank() const {
  int64_t busiest = 0;
  const auto load = [&](int64_t rank) { return std::max(sent_by(rank), received_by(rank)); };
  for (int64_t rank = 1; rank < ranks; ++rank) {
    if (load(rank) > load(busiest)) busiest = rank;
  }
  return busiest;
}

std::string explain(const RunBytes& bytes) {
  std::ostringstream text;
  const int64_t busiest = bytes.busiest_rank();
  text << "one run: " << bytes.exchanges << (bytes.exchanges == 1 ? " exchange" : " exchanges") << " of "
       << bytes.ranks << (bytes.ranks == 1 ? " rank" : " ranks") << '\n'
       << "moved: " << in_bytes(bytes.total()) << " (" << ratio_text(bytes.total(), bytes.least_total())
       << ")\n"
       << "busiest: rank " << busiest << " sends " << in_bytes(bytes.sent_by(busiest)) << " and receives "
       << in_bytes(bytes.received_by(busiest)) << ", of which it needs "
       << in_bytes(bytes.least.empty() ? 0 : bytes.least[static_cast<size_t>(busiest)]) << '\n';
  if (bytes.ranks > 1 && bytes.ranks <= kMostInTable) text << table_text(bytes);
  return text.str();
}

}  // namespace shardway
