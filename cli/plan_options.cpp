// The options of `shardway plan` and their help.
#include <CLI/CLI.hpp>

#include "cli/plan_call.h"

namespace shardway::cli {
namespace {

constexpr const char* kPlanLesson =
    "A mesh is its dims with the ranks along each: dp=2,tp=4 or 2x4. It holds the ranks 0, 1, ... row by "
    "row,\n"
    "or those that it lists: 2x4@8-15.\n"
    "\n"
    "Placements say what each mesh dim does to the tensor, the outermost mesh dim first:\n"
    "  R           every rank along it holds the same\n"
    "  S0          it splits tensor dim 0, as torch.chunk does\n"
    "  S0[3,0,5]   it splits tensor dim 0 into these lengths, one per rank\n"
    "  P, P(max)   every rank holds an addend; they are combined by sum, avg, min, max or product\n"
    "  S0.1,S0.0   both split tensor dim 0, and the second mesh dim splits first\n"
    "torch's words do as well: Shard(0), Replicate(), Partial(max), in any case.\n"
    "\n"
    "Examples:\n"
    "  shardway plan --mesh dp=2,tp=4 --shape 4096x4096 --dtype bf16 --from S0,P --to R,S1\n"
    "      turn the partial sums of a tensor-parallel layer into column shards\n"
    "  shardway plan --mesh 3 --shape 8 --from 'S0[3,0,5]' --to R\n"
    "      gather shards of any size; quotes keep the brackets from the shell\n"
    "  shardway plan --mesh 8 --to-mesh 2x4@8-15 --shape 1024x1024 --from S0 --to S0,S1\n"
    "      move to other ranks, arranged otherwise\n"
    "  shardway plan --mesh 2x2 --shape 1024x1024 --from S0,S1 --to S1,S0 --relabel\n"
    "      arranged otherwise, on ranks that are chosen so that fewer bytes move\n"
    "  shardway plan --mesh 16 --devices-per-host 8 --shape 4096x4096 --from S0 --to S1 --sweep --plot "
    "sweep.svg\n"
    "      the best plan by tensor size, over two hosts\n"
    "  shardway plan --mesh 8 --hosts 2x4 --shape 4096x4096 --from S0 --to R\n"
    "      what crosses between two hosts of four CPU ranks, and what stays in their memory\n"
    "  shardway plan --mesh dp=2,tp=4 --shape 4096x4096 --from S0,P --to R,S1 --max-memory 100MiB --html "
    "plan.html\n"
    "      bound what a rank needs, and see every step move in a browser\n"
    "\n"
    "Exit codes: 0; 1 when there is no such plan; 2 for a mistake in the call.";

void add_question(CLI::App& options, PlanCall& call) {
  const auto add = [&](const char* name, std::string& text, const char* type, const char* help) {
    return options.add_option(name, text, help)->type_name(type)->group("What to plan");
  };
  add("--mesh", call.mesh, "MESH", "the ranks: dp=2,tp=4 or 2x4")->required();
  add("--shape", call.shape, "SHAPE", "of the whole tensor: 4096x4096")->required();
  add("--dtype", call.dtype, "DTYPE", "bf16, f16, f64, i32, ..., or torch's bfloat16; f32 when left out");
  add("--from", call.from, "PLACEMENTS", "one placement per mesh dim: S0,P")->required();
  add("--to", call.to, "PLACEMENTS", "likewise: R,S1")->required();
  add("--to-mesh", call.to_mesh, "MESH", "the mesh that --to is on, where it is another: 4x2 or 4@8-11");
  add("--relabel", call.relabel, "RANKS",
      "let the ranks of --to's mesh be chosen so that fewer bytes\n"
      "move, among these: 0-7; alone, among its own")
      ->expected(0, 1);
}

void add_limits(CLI::App& options, PlanCall& call) {
  const std::string group = "What counts";
  options
      .add_option("--max-memory", call.max_memory, "what a rank may need at a time, its input included: 2GiB")
      ->type_name("BYTES")
      ->group(group);
  CLI::Option* topology = options
                              .add_option("--topology", call.topology,
                                          "what links cost, as docs/topology.md describes;\n"
                                          "else SHARDWAY_TOPOLOGY, else assumed figures")
                              ->type_name("FILE")
                              ->group(group);
  CLI::Option* per_host = options
                              .add_option("--devices-per-host", call.devices_per_host,
                                          "ranks on each host; all on one when left out")
                              ->type_name("N")
                              ->group(group)
                              ->excludes(topology);
  options
      .add_option("--hosts", call.hosts,
                  "CPU ranks on hosts, in two levels: 2x4, or the ranks of\n"
                  "each, 4,2,1")
      ->type_name("HOSTS")
      ->group(group)
      ->excludes(per_host);
  options
      .add_option("--rules", call.rules,
                  "shardway; torch_2_13: DTensor's steps at its prices;\n"
                  "seed_004: its price only")
      ->type_name("RULES")
      ->group(group);
}

void add_outputs(CLI::App& options, PlanCall& call) {
  const std::string group = "What to show";
  options.add_flag("--json", call.wants_json, "JSON instead of text")->group(group);
  CLI::Option* html = options.add_option("--html", call.html, "also write a page that shows every step move")
                          ->type_name("FILE")
                          ->group(group);
  CLI::Option* sweep = options
                           .add_option("--sweep", call.sweep,
                                       "the best plan over lengths of a tensor dim, and where it\n"
                                       "changes: 0=1:65536; alone, dim 0 from 1 to 1048576")
                           ->type_name("DIM=A:B")
                           ->expected(0, 1)
                           ->group(group)
                           ->excludes(html);
  options.add_option("--plot", call.plot, "also write the sweep as a picture: sweep.svg")
      ->type_name("FILE")
      ->group(group)
      ->needs(sweep);
  options.set_help_flag("-h,--help", "print this help")->group(group);
}

}  // namespace

void add_options(CLI::App& options, PlanCall& call) {
  add_question(options, call);
  add_limits(options, call);
  add_outputs(options, call);
  options.footer(kPlanLesson);
}

}  // namespace shardway::cli
