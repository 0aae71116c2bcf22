// Plans as JSON, and back.
#include <stdexcept>

#include "plan/text/json.h"
#include "shardway/plan.h"

namespace shardway {
namespace {

constexpr int64_t kPlanVersion = 1;

Json json_of(const Mesh& mesh) {
  Json json{{"shape", mesh.shape()}, {"ranks", mesh.ranks()}};
  if (!mesh.names().empty()) json["names"] = mesh.names();
  return json;
}

Json json_of(const Placement& placement) {
  if (placement.is_replicate()) return {{"kind", "replicate"}};
  if (placement.is_partial()) return {{"kind", "partial"}, {"op", name_of(placement.op)}};
  Json json{{"kind", "shard"}, {"dim", placement.dim}};
  if (placement.is_ragged()) json["sizes"] = placement.sizes;
  return json;
}

Json json_of(const Layout& layout) {
  Json placements = Json::array();
  for (const Placement& placement : layout.placements()) placements.push_back(json_of(placement));
  return {{"text", placements_text(layout)}, {"shape", layout.shape()},  {"dtype", name_of(layout.dtype())},
          {"mesh", json_of(layout.mesh())},  {"placements", placements}, {"order", layout.order()}};
}

Json json_of(const Step& step, bool in_two_levels) {
  Json json{{"kind", name_of(step.kind)}, {"mesh_dims", step.mesh_dims},     {"from", json_of(step.from)},
            {"to", json_of(step.to)},     {"cost_us", step.cost_us},         {"latency_us", step.latency_us},
            {"bytes", step.bytes},        {"total_bytes", step.total_bytes}, {"peak_bytes", step.peak_bytes}};
  if (in_two_levels) json["crossing_bytes"] = step.crossing_bytes;
  if (step.is_extrapolated) json["extrapolated"] = true;
  return json;
}

Json json_of(const Alternative& lost) {
  return {{"name", lost.name},
          {"text", lost.text},
          {"cost_us", lost.cost_us},
          {"latency_us", lost.latency_us},
          {"steps", lost.steps},
          {"bytes", lost.bytes},
          {"peak_bytes", lost.peak_bytes},
          {"reason", lost.reason}};
}

Json json_of(const Relabelling& relabelling) {
  return {{"given_ranks", relabelling.given_ranks},
          {"ranks", relabelling.ranks},
          {"given_total_bytes", relabelling.given_total_bytes},
          {"total_bytes", relabelling.total_bytes}};
}

Mesh mesh_from(const JsonField& field) {
  std::vector<std::string> names;
  if (field.has("names")) names = field.at("names").texts();
  return {field.at("shape").integers(), field.at("ranks").integers(), std::move(names)};
}

Placement placement_from(const JsonField& field) {
  const std::string kind = field.at("kind").text();
  if (kind == "replicate") return replicate();
  if (kind == "partial") return partial(op_from_name(field.at("op").text()));
  if (kind != "shard") field.at("kind").refuse("is '" + kind + "'; it must be replicate, shard or partial");
  return shard(field.at("dim").integer(),
               field.has("sizes") ? field.at("sizes").integers() : std::vector<int64_t>{});
}

Layout layout_from(const JsonField& field) {
  std::vector<Placement> placements;
  for (const JsonField& item : field.at("placements").items()) placements.push_back(placement_from(item));
  ShardOrder order;
  for (const JsonField& item : field.at("order").items()) order.push_back(item.integers());
  return {field.at("shape").integers(), dtype_from_name(field.at("dtype").text()),
          mesh_from(field.at("mesh")), std::move(placements), std::move(order)};
}

StepKind kind_from(const JsonField& field) {
  for (int kind = 0; kind <= static_cast<int>(StepKind::exchange); ++kind) {
    if (field.text() == name_of(static_cast<StepKind>(kind))) return static_cast<StepKind>(kind);
  }
  field.refuse("is '" + field.text() + "', which is not a kind of step");
}

std::vector<int64_t> mesh_dims_from(const JsonField& field, const Mesh& mesh) {
  std::vector<int64_t> dims = field.integers();
  const auto count = static_cast<int64_t>(mesh.shape().size());
  for (const int64_t dim : dims) {
    if (dim < 0 || dim >= count)
      field.refuse("has " + std::to_string(dim) + ", which is not a dim of a mesh of " +
                   std::to_string(count));
  }
  return dims;
}

Step step_from(const JsonField& field) {
  const Layout from = layout_from(field.at("from"));
  return {.kind = kind_from(field.at("kind")),
          .mesh_dims = mesh_dims_from(field.at("mesh_dims"), from.mesh()),
          .from = from,
          .to = layout_from(field.at("to")),
          .cost_us = field.at("cost_us").number(),
          .latency_us = field.at("latency_us").number(),
          .bytes = field.at("bytes").integer(),
          .total_bytes = field.at("total_bytes").integer(),
          .peak_bytes = field.at("peak_bytes").integer(),
          .crossing_bytes = field.has("crossing_bytes") ? field.at("crossing_bytes").integer() : 0,
          .is_extrapolated = field.has("extrapolated") && field.at("extrapolated").truth()};
}

Alternative alternative_from(const JsonField& field) {
  return {.name = field.at("name").text(),
          .text = field.at("text").text(),
          .cost_us = field.at("cost_us").number(),
          .latency_us = field.at("latency_us").number(),
          .steps = field.at("steps").integer(),
          .bytes = field.at("bytes").integer(),
          .peak_bytes = field.at("peak_bytes").integer(),
          .reason = field.at("reason").text()};
}

Relabelling relabelling_from(const JsonField& field) {
  return {.given_ranks = field.at("given_ranks").integers(),
          .ranks = field.at("ranks").integers(),
          .given_total_bytes = field.at("given_total_bytes").integer(),
          .total_bytes = field.at("total_bytes").integer()};
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json steps = Json::array();
  for (const Step& step : plan.steps) steps.push_back(json_of(step, plan.in_two_levels));
  Json alternatives = Json::array();
  for (const Alternative& lost : plan.alternatives) alternatives.push_back(json_of(lost));
  Json document{{"version", kPlanVersion},           {"text", plan.text()},
                {"from", json_of(plan.from)},        {"to", json_of(plan.to)},
                {"cost_us", plan.cost_us},           {"bytes", plan.bytes},
                {"total_bytes", plan.total_bytes},   {"peak_bytes", plan.peak_bytes},
                {"topology", plan.topology},         {"layouts_searched", plan.layouts_searched},
                {"steps_priced", plan.steps_priced}, {"steps", steps},
                {"alternatives", alternatives}};
  if (plan.in_two_levels) document["crossing_bytes"] = plan.crossing_bytes;
  if (plan.relabelling) document["relabelling"] = json_of(*plan.relabelling);
  return document.dump(1);
}

Plan plan_from_json(const std::string& text) {
  const Json document = parse_json(text, "plan");
  const JsonField root(document, "plan");
  if (root.at("version").integer() != kPlanVersion) {
    root.at("version").refuse("is not " + std::to_string(kPlanVersion) +
                              ", the version that this shardway reads");
  }
  Plan plan{.from = layout_from(root.at("from")),
            .to = layout_from(root.at("to")),
            .cost_us = root.at("cost_us").number(),
            .bytes = root.at("bytes").integer(),
            .total_bytes = root.at("total_bytes").integer(),
            .peak_bytes = root.at("peak_bytes").integer(),
            .topology = root.at("topology").text(),
            .layouts_searched = root.at("layouts_searched").integer(),
            .steps_priced = root.at("steps_priced").integer()};
  plan.in_two_levels = root.has("crossing_bytes");
  if (root.has("relabelling")) plan.relabelling = relabelling_from(root.at("relabelling"));
  if (plan.in_two_levels) plan.crossing_bytes = root.at("crossing_bytes").integer();
  for (const JsonField& step : root.at("steps").items()) plan.steps.push_back(step_from(step));
  for (const JsonField& lost : root.at("alternatives").items())
    plan.alternatives.push_back(alternative_from(lost));
  return plan;
}

}  // namespace shardway
