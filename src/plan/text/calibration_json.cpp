#include "plan/text/calibration_file.h"

#include "plan/text/calibration_json.h"

namespace shardway {
namespace {

Json json_of(const MeasuredCall& call) {
  return {{"op", name_of(call.kind)},     {"bytes", call.bytes},
          {"parts", name_of(call.parts)}, {"us", call.us},
          {"spread", call.spread},        {"retest_error", call.retest_error},
          {"held_out", call.is_held_out}};
}

Json json_of(const Calibration& calibration) {
  Json calls = Json::array();
  for (const MeasuredCall& call : calibration.calls) calls.push_back(json_of(call));
  return {{"machine", calibration.machine},
          {"processor", calibration.processor},
          {"cores", calibration.cores},
          {"ranks", calibration.ranks},
          {"ranks_share_cores", calibration.ranks_share_cores()},
          {"backend", calibration.backend},
          {"date", calibration.date},
          {"complete", calibration.is_complete},
          {"repetitions", calibration.repetitions},
          {"retest_error", calibration.retest_error},
          {"held_out_error", calibration.held_out_error},
          {"calls", calls}};
}

int64_t count_from(const JsonField& field, int64_t least) {
  const int64_t count = field.integer();
  if (count < least)
    field.refuse("is " + std::to_string(count) + "; it must be at least " + std::to_string(least));
  return count;
}

double share_from(const JsonField& field) {
  const double share = field.number();
  if (share < 0) field.refuse("is negative; it must be at least 0");
  return share;
}

StepKind measured_kind_from(const JsonField& field) {
  const std::string name = field.text();
  for (const StepKind kind : kMeasuredKinds) {
    if (name == name_of(kind)) return kind;
  }
  if (name == name_of(StepKind::exchange)) return StepKind::exchange;
  field.refuse("is '" + name + "', which is not a kind of step that is measured");
}

// Files of version 1 have even parts, and do not say so.
Portions parts_from(const JsonField& call) {
  if (!call.has("parts")) return Portions::even;
  const std::string name = call.at("parts").text();
  for (const Portions parts : {Portions::even, Portions::rising, Portions::alternating}) {
    if (name == name_of(parts)) return parts;
  }
  call.at("parts").refuse("is '" + name + "'; it must be even, rising or alternating");
}

MeasuredCall call_from(const JsonField& field) {
  field.allow_only({"op", "bytes", "parts", "us", "spread", "retest_error", "held_out"});
  const MeasuredCall call{.kind = measured_kind_from(field.at("op")),
                          .bytes = count_from(field.at("bytes"), 1),
                          .parts = parts_from(field),
                          .us = field.at("us").number(),
                          .spread = share_from(field.at("spread")),
                          .retest_error = share_from(field.at("retest_error")),
                          .is_held_out = field.at("held_out").truth()};
  if (call.us <= 0) field.at("us").refuse("must be above 0");
  return call;
}

}  // namespace

Calibration calibration_from(const JsonField& measured) {
  measured.allow_only({"machine", "processor", "cores", "ranks", "ranks_share_cores", "backend", "date",
                       "complete", "repetitions", "retest_error", "held_out_error", "calls"});
  Calibration calibration{.machine = measured.at("machine").text(),
                          .processor = measured.at("processor").text(),
                          .cores = count_from(measured.at("cores"), 1),
                          .ranks = count_from(measured.at("ranks"), 2),
                          .backend = measured.at("backend").text(),
                          .date = measured.at("date").text(),
                          .is_complete = measured.at("complete").truth(),
                          .repetitions = count_from(measured.at("repetitions"), 2),
                          .retest_error = share_from(measured.at("retest_error")),
                          .held_out_error = share_from(measured.at("held_out_error"))};
  if (measured.at("ranks_share_cores").truth() != calibration.ranks_share_cores())
    measured.at("ranks_share_cores").refuse("contradicts cores and ranks");
  for (const JsonField& call : measured.at("calls").items()) calibration.calls.push_back(call_from(call));
  return calibration;
}

std::string to_json(const Topology& topology, const Calibration& calibration) {
  Json document = Json::parse(to_json(topology));
  document["measured"] = json_of(calibration);
  return document.dump(2);
}

std::optional<Calibration> read_calibration(const std::string& path) {
  const std::string text = read_topology_file(path);
  (void)topology_from_json(text, path);
  const Json document = parse_json(text, path);
  const JsonField root(document, path);
  if (!root.has("measured")) return std::nullopt;
  return calibration_from(root.at("measured"));
}

std::string doubt_about(const Calibration& calibration, const PricedUse& use) {
  std::string where;
  if (!use.processor.empty() && use.processor != calibration.processor)
    where = "on another processor (" + calibration.processor + "; here it is " + use.processor + ")";
  else if (use.cores > 0 && use.cores != calibration.cores)
    where = "with " + std::to_string(calibration.cores) + " cores (here " + std::to_string(use.cores) + ")";
  std::string who;
  if (use.ranks > 0 && use.ranks != calibration.ranks)
    who = "with " + std::to_string(calibration.ranks) + " ranks (this is for " + std::to_string(use.ranks) +
          ")";
  if (where.empty() && who.empty()) return {};
  return "its figures were measured " + where + (where.empty() || who.empty() ? "" : " and ") + who +
         ": measure again with shardway calibrate";
}

}  // namespace shardway
