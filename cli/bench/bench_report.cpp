#include "cli/bench/bench_report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace shardway::cli {
namespace {

template <class... Values>
std::string filled(const char* format, Values... values) {
  std::array<char, 320> text{};
  (void)std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

// The part of `bytes` that crosses between ranks, in both phases of an all_reduce; as nccl-tests count it.
double bus_factor(StepKind kind, int64_t ranks) {
  const auto count = static_cast<double>(ranks);
  if (kind == StepKind::permute) return 1;
  return (kind == StepKind::all_reduce ? 2 : 1) * (count - 1) / count;
}

const char* reduction_of(StepKind kind) {
  return kind == StepKind::reduce_scatter || kind == StepKind::all_reduce ? "sum" : "none";
}

std::string name_of(const BenchRow& row) {
  std::string name = shardway::name_of(row.call.kind);
  if (row.call.parts != Portions::even) name += std::string(", parts ") + shardway::name_of(row.call.parts);
  return name;
}

std::string head_of(const BenchSetting& setting) {
  return filled("shardway %s, %s: %lld ranks on %lld cores%s, shared memory\n%s, %s, Linux %s\n",
                setting.version.c_str(), setting.date.c_str(), static_cast<long long>(setting.ranks),
                static_cast<long long>(setting.cores),
                setting.ranks > setting.cores ? ", which they share" : "", setting.machine.c_str(),
                setting.processor.c_str(), setting.kernel.c_str());
}

std::string row_text(const BenchRow& row) {
  return filled("%12lld%12lld%7s%7s%12.2f%9.2f%9.2f%9.0f %%  %s\n", static_cast<long long>(row.call.bytes),
                static_cast<long long>(row.call.bytes / kTrialItemBytes), "float",
                reduction_of(row.call.kind), row.call.us, row.algbw, row.busbw, 100 * row.call.spread,
                row.library.c_str());
}

// How far repetitions of one call lie apart, in the median over calls.
struct Noise {
  double spread = 0;
  double retest_error = 0;
};

Noise noise_of(const std::vector<BenchRow>& rows) {
  std::vector<double> spreads;
  std::vector<double> errors;
  for (const BenchRow& row : rows) {
    spreads.push_back(row.call.spread);
    errors.push_back(row.call.retest_error);
  }
  return {.spread = median_of(spreads), .retest_error = median_of(errors)};
}

std::string noise_text(const std::vector<BenchRow>& rows) {
  const Noise noise = noise_of(rows);
  std::string text = filled(
      "\nnoise: half of the repetitions of a call lie within %.0f %% of its time; odd and even rounds "
      "differ by %.0f %% (medians over calls)\n",
      100 * noise.spread, 100 * noise.retest_error);
  if (noise.retest_error > kMostRetestError)
    text += "that is too noisy to rely on: measure again while nothing else runs\n";
  return text;
}

}  // namespace

std::vector<BenchRow> bench_rows(const std::vector<Trial>& trials, const std::vector<LibraryTimes>& times,
                                 int64_t ranks) {
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < trials.size(); ++i) {
    for (const LibraryTimes& each : times) {
      if (each.us[i].size() < 2) continue;
      BenchRow row{.library = each.library, .call = summary_of(trials[i], each.us[i])};
      row.algbw = static_cast<double>(row.call.bytes) / row.call.us / 1e3;
      row.busbw = row.algbw * bus_factor(row.call.kind, ranks);
      rows.push_back(row);
    }
  }
  return rows;
}

std::string bench_text(const BenchResult& result) {
  std::string text = head_of(result.setting);
  std::string last;
  for (const BenchRow& row : result.rows) {
    if (name_of(row) != last) {
      last = name_of(row);
      text += "\n" + last + "\n" +
              filled("%12s%12s%7s%7s%12s%9s%9s%11s  %s\n", "size (B)", "count", "type", "redop", "time (us)",
                     "algbw", "busbw", "spread", "library");
    }
    text += row_text(row);
  }
  text += noise_text(result.rows);
  text += "bandwidths are in GB/s, 10^9 bytes a second\n";
  for (const std::string& line : result.not_compared) text += "not compared with " + line + "\n";
  return text;
}

std::string bench_csv(const BenchResult& result) {
  const BenchSetting& setting = result.setting;
  std::string text =
      "op,parts,ranks,bytes,count,type,redop,us,algbw_gb_per_s,busbw_gb_per_s,spread,retest_error,date,"
      "processor,version,library\n";
  std::string processor = setting.processor;
  for (size_t at = 0; (at = processor.find('"', at)) != std::string::npos; at += 2)
    processor.insert(at, "\"");
  for (const BenchRow& row : result.rows) {
    text += filled("%s,%s,%lld,%lld,%lld,float,%s,%.3f,%.4f,%.4f,%.4f,%.4f,",
                   shardway::name_of(row.call.kind), shardway::name_of(row.call.parts),
                   static_cast<long long>(setting.ranks), static_cast<long long>(row.call.bytes),
                   static_cast<long long>(row.call.bytes / kTrialItemBytes), reduction_of(row.call.kind),
                   row.call.us, row.algbw, row.busbw, row.call.spread, row.call.retest_error);
    text += setting.date + ",\"" + processor + "\"," + setting.version + ",\"" + row.library + "\"\n";
  }
  return text;
}

std::string bench_json(const BenchResult& result) {
  const BenchSetting& setting = result.setting;
  const Noise noise = noise_of(result.rows);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : result.rows) {
    rows.push_back({{"library", row.library},
                    {"op", shardway::name_of(row.call.kind)},
                    {"parts", shardway::name_of(row.call.parts)},
                    {"bytes", row.call.bytes},
                    {"count", row.call.bytes / kTrialItemBytes},
                    {"us", row.call.us},
                    {"algbw_gb_per_s", row.algbw},
                    {"busbw_gb_per_s", row.busbw},
                    {"spread", row.call.spread},
                    {"retest_error", row.call.retest_error}});
  }
  return nlohmann::ordered_json{{"version", 1},
                                {"shardway", setting.version},
                                {"machine", setting.machine},
                                {"processor", setting.processor},
                                {"kernel", setting.kernel},
                                {"cores", setting.cores},
                                {"ranks", setting.ranks},
                                {"backend", "shared memory"},
                                {"date", setting.date},
                                {"complete", setting.is_complete},
                                {"spread", noise.spread},
                                {"retest_error", noise.retest_error},
                                {"not_compared", result.not_compared},
                                {"rows", rows}}
             .dump(2) +
         "\n";
}

}  // namespace shardway::cli
