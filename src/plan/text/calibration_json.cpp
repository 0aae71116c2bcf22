#include "plan/text/calibration_json.h"

namespace shardway {
namespace {

Json json_of(const MeasuredCall& call) {
  return {{"op", name_of(call.kind)},     {"bytes", call.bytes},
          {"parts", name_of(call.parts)}, {"us", call.us},
          {"spread", call.spread},        {"retest_error", call.retest_error},
          {"held_out", call.is_held_out}};
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
  for (const Portions parts : kPortions) {
    if (name == name_of(parts)) return parts;
  }
  call.at("parts").refuse("is '" + name + "'; it must be even, rising, leaning or alternating");
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

MeasuredChoice choice_from(const JsonField& field) {
  field.allow_only({"saves", "spread"});
  const MeasuredChoice choice{.saves = field.at("saves").number(), .spread = share_from(field.at("spread"))};
  if (choice.saves >= 1) field.at("saves").refuse("is 1 or more; it is a share of the time without");
  return choice;
}

// Earlier versions, and runs of ranks that share cores, have none.
MeasuredChoices choices_from(const JsonField& measured) {
  MeasuredChoices choices;
  if (!measured.has("tuning")) return choices;
  const JsonField field = measured.at("tuning");
  field.allow_only({"swap", "hand_back"});
  if (field.has("swap")) choices.swap = choice_from(field.at("swap"));
  if (field.has("hand_back")) choices.hand_back = choice_from(field.at("hand_back"));
  return choices;
}

Json json_of(const MeasuredChoices& choices) {
  Json tuning = Json::object();
  const auto add = [&](const char* name, const std::optional<MeasuredChoice>& choice) {
    if (choice) tuning[name] = {{"saves", choice->saves}, {"spread", choice->spread}};
  };
  add("swap", choices.swap);
  add("hand_back", choices.hand_back);
  return tuning;
}

}  // namespace

Calibration calibration_from(const JsonField& measured) {
  measured.allow_only({"machine", "processor", "cores", "ranks", "ranks_share_cores", "backend", "date",
                       "complete", "repetitions", "retest_error", "held_out_error", "tuning", "calls"});
  Calibration calibration{.machine = measured.at("machine").text(),
                          .processor = measured.at("processor").text(),
                          .cores = count_from(measured.at("cores"), 1),
                          .ranks = count_from(measured.at("ranks"), 2),
                          .backend = measured.at("backend").text(),
                          .date = measured.at("date").text(),
                          .is_complete = measured.at("complete").truth(),
                          .repetitions = count_from(measured.at("repetitions"), 2),
                          .retest_error = share_from(measured.at("retest_error")),
                          .held_out_error = share_from(measured.at("held_out_error")),
                          .choices = choices_from(measured)};
  if (measured.at("ranks_share_cores").truth() != calibration.ranks_share_cores())
    measured.at("ranks_share_cores").refuse("contradicts cores and ranks");
  for (const JsonField& call : measured.at("calls").items()) calibration.calls.push_back(call_from(call));
  return calibration;
}

std::vector<Calibration> runs_from(const JsonField& file) {
  std::vector<Calibration> runs;
  if (!file.has("measured")) return runs;
  runs.push_back(calibration_from(file.at("measured")));
  if (!file.has("also_measured")) return runs;
  for (const JsonField& item : file.at("also_measured").items()) {
    Calibration run = calibration_from(item);
    for (const Calibration& other : runs) {
      if (other.ranks == run.ranks)
        item.at("ranks").refuse("is " + std::to_string(run.ranks) + ", as in another run of the file");
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

Json json_of(const Calibration& calibration) {
  Json calls = Json::array();
  for (const MeasuredCall& call : calibration.calls) calls.push_back(json_of(call));
  Json document{{"machine", calibration.machine},
                {"processor", calibration.processor},
                {"cores", calibration.cores},
                {"ranks", calibration.ranks},
                {"ranks_share_cores", calibration.ranks_share_cores()},
                {"backend", calibration.backend},
                {"date", calibration.date},
                {"complete", calibration.is_complete},
                {"repetitions", calibration.repetitions},
                {"retest_error", calibration.retest_error},
                {"held_out_error", calibration.held_out_error}};
  if (calibration.choices != MeasuredChoices{}) document["tuning"] = json_of(calibration.choices);
  document["calls"] = std::move(calls);
  return document;
}

}  // namespace shardway
