#include "shardway/topology.h"

#include <cmath>
#include <iterator>
#include <stdexcept>

namespace shardway {
namespace {

constexpr const char* kPricedOps[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"};

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw std::invalid_argument("topology: " + field + " " + why);
}

void check_figure(const std::string& field, double value, bool may_be_zero) {
  if (!std::isfinite(value) || value < 0 || (value == 0 && !may_be_zero)) {
    refuse(field, "is " + std::to_string(value) + "; it must be a finite number " +
                      (may_be_zero ? "of at least 0" : "above 0"));
  }
}

void check_link(const std::string& field, const Link& link) {
  check_figure(field + ".latency_us", link.latency_us, true);
  check_figure(field + ".gib_per_s", link.gib_per_s, false);
}

bool have_same_tables(const Topology& a, const Topology& b) {
  if (a.tables == b.tables) return true;
  return a.tables != nullptr && b.tables != nullptr && *a.tables == *b.tables;
}

void check_share(const std::string& field, double share) {
  if (!(share >= 0 && share <= 1)) refuse(field, "is " + std::to_string(share) + "; it must be from 0 to 1");
}

void check_curve(const std::string& field, const PriceCurve& curve) {
  check_share(field + ".busiest_share", curve.busiest_share);
  if (curve.points.empty()) refuse(field + ".points", "is empty");
  double last = 0;
  for (const PriceCurve::Point& point : curve.points) {
    check_figure(field + ".points: bytes", point.bytes, false);
    check_figure(field + ".points: us", point.us, false);
    if (point.bytes <= last) refuse(field + ".points", "must have rising bytes");
    last = point.bytes;
  }
}

void check_table(const PriceTable& table) {
  const std::string field = "tables of " + std::to_string(table.ranks) + " ranks";
  if (table.ranks < 2) refuse(field, "cannot be: at least 2 ranks are measured");
  check_share(field + ": kept_share", table.kept_share);
  check_figure(field + ": step_us", table.step_us, true);
  for (const char* op : kPricedOps) {
    const auto found = table.curves.find(op);
    if (found == table.curves.end()) refuse(field, std::string("lack ") + op);
    check_curve(field + ": " + op, found->second);
  }
  const auto exchange = table.curves.find("exchange");
  const bool has_exchange = exchange != table.curves.end();
  if (has_exchange) check_curve(field + ": exchange", exchange->second);
  if (table.curves.size() != std::size(kPricedOps) + (has_exchange ? 1 : 0))
    refuse(field, "price an op that is not a known one");
}

}  // namespace

int64_t Topology::host_of(int64_t rank) const {
  if (!host_of_rank.empty()) {
    if (rank >= static_cast<int64_t>(host_of_rank.size())) {
      refuse("hosts.of_rank", "has " + std::to_string(host_of_rank.size()) + " entries and none for rank " +
                                  std::to_string(rank));
    }
    return host_of_rank[static_cast<size_t>(rank)];
  }
  return ranks_per_host > 0 ? rank / ranks_per_host : 0;
}

const Link& Topology::link_of(const Mesh& mesh, int64_t dim) const {
  if (!dims.empty()) {
    if (!mesh.names().empty()) {
      if (const auto found = dims.find(mesh.names()[static_cast<size_t>(dim)]); found != dims.end()) {
        return found->second;
      }
    }
    if (const auto found = dims.find(std::to_string(dim)); found != dims.end()) return found->second;
  }
  return within_host;
}

bool Topology::operator==(const Topology& other) const {
  return base_us == other.base_us && within_host == other.within_host &&
         between_hosts == other.between_hosts && dims == other.dims &&
         ranks_per_host == other.ranks_per_host && host_of_rank == other.host_of_rank &&
         two_levels == other.two_levels && copy_gib_per_s == other.copy_gib_per_s &&
         reduce_gib_per_s == other.reduce_gib_per_s && have_same_tables(*this, other);
}

void validate(const Topology& topology) {
  check_figure("base_us", topology.base_us, true);
  check_link("within_host", topology.within_host);
  check_link("between_hosts", topology.between_hosts);
  for (const auto& [name, link] : topology.dims) check_link("dims." + name, link);
  check_figure("copy_gib_per_s", topology.copy_gib_per_s, true);
  check_figure("reduce_gib_per_s", topology.reduce_gib_per_s, true);
  if (topology.ranks_per_host < 0) {
    refuse("hosts.ranks_per_host",
           "is " + std::to_string(topology.ranks_per_host) + "; it must be at least 1");
  }
  if (topology.tables) {
    for (const PriceTable& table : *topology.tables) check_table(table);
  }
  if (topology.two_levels && !topology.dims.empty())
    refuse("dims", "has links inside a host, but two levels move by the memory of a host, within_host");
  for (const int64_t host : topology.host_of_rank) {
    if (host < 0) refuse("hosts.of_rank", "has the host " + std::to_string(host) + ", which is negative");
  }
}

}  // namespace shardway
