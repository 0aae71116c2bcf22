// Topologies as files: docs/topology.md has the schema.
#include <stdexcept>

#include "plan/text/calibration_file.h"
#include "plan/text/calibration_json.h"
#include "plan/text/json.h"
#include "shardway/topology.h"

namespace shardway {
namespace {

constexpr int64_t kVersionOfFigures = 1;
constexpr int64_t kVersionOfTables = 2;  // with `tables`

Link link_from(const JsonField& field) {
  field.allow_only({"latency_us", "gib_per_s"});
  const JsonField latency = field.at("latency_us");
  const JsonField bandwidth = field.at("gib_per_s");
  if (latency.number() < 0) latency.refuse("is negative; it must be at least 0");
  if (bandwidth.number() <= 0) bandwidth.refuse("must be above 0");
  return {.latency_us = latency.number(), .gib_per_s = bandwidth.number()};
}

double figure_from(const JsonField& field) {
  const double figure = field.number();
  if (figure < 0) field.refuse("is negative; it must be at least 0");
  return figure;
}

void read_hosts(const JsonField& hosts, Topology& topology) {
  hosts.allow_only({"ranks_per_host", "of_rank", "two_levels"});
  if (hosts.has("ranks_per_host")) {
    topology.ranks_per_host = hosts.at("ranks_per_host").integer();
    if (topology.ranks_per_host < 1) hosts.at("ranks_per_host").refuse("must be at least 1");
  }
  if (hosts.has("two_levels")) topology.two_levels = hosts.at("two_levels").truth();
  if (hosts.has("of_rank")) {
    for (const JsonField& host : hosts.at("of_rank").items()) {
      if (host.integer() < 0) host.refuse("is negative; hosts are numbered from 0");
      topology.host_of_rank.push_back(host.integer());
    }
  }
}

PriceCurve curve_from(const JsonField& field) {
  field.allow_only({"busiest_share", "points"});
  PriceCurve curve{.busiest_share = field.at("busiest_share").number()};
  for (const JsonField& item : field.at("points").items()) {
    const std::vector<JsonField> pair = item.items();
    if (pair.size() != 2) item.refuse("must be a pair of bytes and us");
    curve.points.push_back({.bytes = pair[0].number(), .us = pair[1].number()});
  }
  return curve;
}

PriceTable table_from(const JsonField& field) {
  if (field.has("own_share"))
    field.at("own_share").refuse("is of an earlier shardway; measure again with shardway calibrate");
  field.allow_only({"ranks", "kept_share", "step_us", "ops"});
  PriceTable table{.ranks = field.at("ranks").integer()};
  if (field.has("kept_share")) table.kept_share = field.at("kept_share").number();
  if (field.has("step_us")) table.step_us = field.at("step_us").number();
  const JsonField ops = field.at("ops");
  for (const std::string& op : ops.keys()) table.curves[op] = curve_from(ops.at(op));
  return table;
}

void read_tables(const JsonField& field, Topology& topology) {
  PriceTables tables;
  for (const JsonField& item : field.items()) tables.push_back(table_from(item));
  topology.tables = std::make_shared<const PriceTables>(std::move(tables));
  try {
    validate(topology);
  } catch (const std::invalid_argument& problem) {
    field.refuse(problem.what());
  }
}

Json json_of(const PriceTable& table) {
  Json ops = Json::object();
  for (const auto& [op, curve] : table.curves) {
    Json points = Json::array();
    for (const PriceCurve::Point& point : curve.points)
      points.push_back(Json::array({point.bytes, point.us}));
    ops[op] = {{"busiest_share", curve.busiest_share}, {"points", points}};
  }
  return {{"ranks", table.ranks}, {"kept_share", table.kept_share}, {"step_us", table.step_us}, {"ops", ops}};
}

Json json_of(const Link& link) { return {{"latency_us", link.latency_us}, {"gib_per_s", link.gib_per_s}}; }

}  // namespace

Topology topology_from(const JsonField& root) {
  const JsonField version = root.at("version");
  if (version.integer() != kVersionOfFigures && version.integer() != kVersionOfTables) {
    version.refuse("is " + std::to_string(version.integer()) + "; this shardway reads versions " +
                   std::to_string(kVersionOfFigures) + " and " + std::to_string(kVersionOfTables));
  }
  root.allow_only({"version", "source", "base_us", "within_host", "between_hosts", "dims", "hosts",
                   "copy_gib_per_s", "reduce_gib_per_s", "tables", "measured", "also_measured", "notes"});
  if (version.integer() == kVersionOfFigures && root.has("tables"))
    root.at("tables").refuse("belongs to version " + std::to_string(kVersionOfTables));
  Topology topology{.base_us = figure_from(root.at("base_us")),
                    .within_host = link_from(root.at("within_host")),
                    .source = root.has("source") ? root.at("source").text() : "given"};
  topology.between_hosts =
      root.has("between_hosts") ? link_from(root.at("between_hosts")) : topology.within_host;
  if (root.has("dims")) {
    const JsonField dims = root.at("dims");
    for (const std::string& name : dims.keys()) topology.dims[name] = link_from(dims.at(name));
  }
  if (root.has("hosts")) read_hosts(root.at("hosts"), topology);
  if (root.has("copy_gib_per_s")) topology.copy_gib_per_s = figure_from(root.at("copy_gib_per_s"));
  if (root.has("reduce_gib_per_s")) topology.reduce_gib_per_s = figure_from(root.at("reduce_gib_per_s"));
  if (root.has("tables")) read_tables(root.at("tables"), topology);
  const bool has_several_hosts = topology.ranks_per_host > 0 || !topology.host_of_rank.empty();
  if (has_several_hosts && !root.has("between_hosts")) {
    root.at("hosts").refuse("gives hosts, but there is no between_hosts with the figures of the network");
  }
  if (topology.two_levels && !topology.dims.empty())
    root.at("dims").refuse(
        "has links inside a host, but two levels move by the memory of a host, within_host");
  return topology;
}

Topology topology_from_json(const std::string& text, const std::string& file) {
  return topology_file_from_json(text, file).topology;
}

std::string to_json(const Topology& topology) {
  Json document{{"version", topology.tables ? kVersionOfTables : kVersionOfFigures},
                {"source", topology.source},
                {"base_us", topology.base_us},
                {"within_host", json_of(topology.within_host)},
                {"between_hosts", json_of(topology.between_hosts)}};
  for (const auto& [name, link] : topology.dims) document["dims"][name] = json_of(link);
  if (topology.ranks_per_host > 0) document["hosts"]["ranks_per_host"] = topology.ranks_per_host;
  if (!topology.host_of_rank.empty()) document["hosts"]["of_rank"] = topology.host_of_rank;
  if (topology.two_levels) document["hosts"]["two_levels"] = true;
  if (topology.copy_gib_per_s > 0) document["copy_gib_per_s"] = topology.copy_gib_per_s;
  if (topology.reduce_gib_per_s > 0) document["reduce_gib_per_s"] = topology.reduce_gib_per_s;
  if (topology.tables) {
    document["tables"] = Json::array();
    for (const PriceTable& table : *topology.tables) document["tables"].push_back(json_of(table));
  }
  return document.dump(2);
}

}  // namespace shardway
