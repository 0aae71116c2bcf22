// shardway plan
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/calibrate/calibration_plot.h"
#include "cli/plan_call.h"
#include "cli/plan_text.h"
#include "cli/subcommand.h"
#include "cli/sweep_plot.h"
#include "cli/whole_file.h"
#include "plan/geometry/cost_text.h"
#include "plan/text/calibration_file.h"
#include "plan/text/json.h"
#include "shardway/page.h"
#include "shm/memory/machine.h"

namespace shardway::cli {
namespace {

// The planner's sentence in the words of the command line.
std::string in_words_of(const PlanCall& call, const PlanOptions& options, std::string text) {
  const std::string subject = "plan: ";
  if (text.starts_with(subject)) text.erase(0, subject.size());
  const std::string limit = "max_bytes=" + std::to_string(options.max_bytes.value_or(0));
  if (const size_t at = text.find(limit); at != std::string::npos) {
    text.replace(at, limit.size(), "--max-memory " + call.max_memory);
  }
  return text;
}

// The call was checked before, so an error of the planner is a no.
std::shared_ptr<const Plan> plan_or_no(const PlanCall& call, const PlanQuestion& question,
                                       const PlanOptions& options) {
  try {
    return plan(question.from, question.to, options);
  } catch (const std::invalid_argument& reason) {
    throw Refusal(in_words_of(call, options, reason.what()));
  }
}

ExitCode print_price(const PlanCall& call, const PlanQuestion& question) {
  const double cost_us = redistribute_cost(question.from, question.to, question.options);
  if (cost_us == kImpossible)
    throw Refusal("the rules " + call.rules + " have no price for this: addends would be made");
  if (call.wants_json) {
    print(Json{{"version", 1}, {"rules", call.rules}, {"cost_us", cost_us}}.dump(1) + "\n");
  } else {
    const bool is_estimate = gives_estimates(question.options.topology->source);
    print(cost_in_us(cost_us, is_estimate) + " by the rules " + call.rules +
          ", which have prices and no plans\n");
  }
  return ExitCode::yes;
}

ExitCode print_sweep(const PlanCall& call, const PlanQuestion& question) {
  plan_or_no(call, question, {.topology = question.options.topology, .rules = question.options.rules});
  const auto rows = sweep_plans(question.from, question.to, *question.sweep, question.options);
  const bool is_estimate = gives_estimates(question.options.topology->source);
  if (!call.plot.empty())
    write_whole(call.plot, sweep_svg(question.from, question.to, *question.sweep, rows, is_estimate));
  if (call.wants_json) {
    print(sweep_json(*question.sweep, rows) + "\n");
  } else {
    print(sweep_text(question.from, question.to, *question.sweep, rows, is_estimate, terminal_of_stdout()) +
          (call.plot.empty() ? "" : "\nthe plot is " + call.plot + "\n"));
  }
  return ExitCode::yes;
}

// Where the figures come from; empty if they are assumed.
std::string topology_path(const PlanCall& call) {
  if (!call.topology.empty()) return call.topology;
  const char* variable = std::getenv("SHARDWAY_TOPOLOGY");  // NOLINT(concurrency-mt-unsafe): one thread
  return !call.devices_per_host.empty() || variable == nullptr ? "" : variable;
}

// If the figures were measured, and for another machine or other ranks, says so.
void say_doubts(const PlanCall& call, const PlanQuestion& question) {
  const std::string path = topology_path(call);
  if (path.empty()) return;
  const std::string doubt = doubt_about(
      read_topology_file(path).runs,
      {.processor = shm::model_of_processor(),
       .cores = shm::usable_cores(),
       .ranks = most_ranks_on_a_host(*question.options.topology,
                                     std::max(question.from.mesh().size(), question.to.mesh().size()))});
  if (!doubt.empty()) std::fprintf(stderr, "shardway plan: %s: %s\n", path.c_str(), doubt.c_str());
}

// Of the calls that gave the prices, if they were measured.
std::string picture_of_prices(const PlanCall& call) {
  const std::string path = topology_path(call);
  if (path.empty()) return {};
  const TopologyFile file = read_topology_file(path);
  return file.runs.empty() ? "" : calibration_svg(file);
}

ExitCode answer(const PlanCall& call) {
  const PlanQuestion question = read_question(call);
  say_doubts(call, question);
  const PlanOptions& options = question.options;
  if (options.rules == Rules::seed_004) return print_price(call, question);
  if (question.sweep) return print_sweep(call, question);
  const auto best = plan_or_no(call, question, options);
  if (!call.html.empty()) {
    write_whole(call.html, to_html(*best, {.topology = options.topology,
                                           .max_bytes = options.max_bytes,
                                           .measured_svg = picture_of_prices(call)}));
  }
  if (call.wants_json) {
    print(to_json(*best) + "\n");
  } else {
    print(plan_text(*best, terminal_of_stdout()) +
          (call.html.empty() ? "" : "the page is " + call.html + "\n"));
  }
  return ExitCode::yes;
}

}  // namespace

Answer add_plan(CLI::App& options) {
  auto call = std::make_shared<PlanCall>();
  add_options(options, *call);
  return [call, &options] {
    call->wants_sweep = options.count("--sweep") > 0;
    call->wants_relabel = options.count("--relabel") > 0;
    return answer(*call);
  };
}

}  // namespace shardway::cli
