// Plans and routes on 16x16x16 ranks: a line of JSON per pair of layouts, for bench/plan.py.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "shardway/plan.h"

namespace {

namespace sw = shardway;

constexpr int64_t kRanks = 4096;

struct Pair {
  std::vector<sw::Placement> from;
  std::vector<sw::Placement> to;
};

std::vector<Pair> pairs() {
  const auto s = [](int64_t dim) { return sw::shard(dim); };
  const sw::Placement r = sw::replicate();
  const sw::Placement p = sw::partial();
  return {{{s(0), s(1), s(2)}, {s(1), s(2), s(0)}},
          {{s(0), s(0), r}, {r, s(0), s(1)}},
          {{p, s(0), s(1)}, {s(0), r, s(1)}},
          {{s(0), s(1), r}, {s(0), r, s(1)}},
          {{s(0), s(1), s(2)}, {r, s(1), s(2)}},
          {{s(0), s(1), s(1)}, {s(1), s(0), s(0)}},
          {{p, p, s(0)}, {s(1), s(1), s(0)}},
          {{s(0), s(1), s(2)}, {r, r, r}},
          {{r, r, s(0)}, {s(0), s(1), r}},
          {{s(0), s(0), s(0)}, {s(1), s(1), s(1)}},
          {{p, p, p}, {r, r, r}},
          {{p, p, p}, {s(0), s(1), s(2)}},
          {{p, p, s(0)}, {r, r, r}},
          {{p, s(0), s(1)}, {r, r, r}},
          {{s(0), s(0), s(0)}, {r, r, r}},
          {{r, r, r}, {s(0), s(0), s(0)}},
          {{s(2), s(0), s(0)}, {s(0), s(1), s(2)}}};
}

// Of the processor: nothing here waits.
double now_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Timed {
  double us = 0;
  size_t peers = 0;
};

Timed time_routes(const sw::Layout& from, const sw::Layout& to) {
  std::vector<double> samples;
  size_t peers = 0;
  for (int64_t rank = 0; rank < kRanks; rank += 137) {
    const double start = now_us();
    const sw::Route route = sw::redistribution_route(from, to, rank);
    samples.push_back(now_us() - start);
    peers = std::max({peers, route.pulls.size(), route.pushes.size()});
  }
  return {median(samples), peers};
}

double time_plans(const sw::Layout& from, const sw::Layout& to, const sw::PlanOptions& options) {
  std::vector<double> samples;
  for (int i = 0; i < 3; ++i) {
    sw::clear_plans();
    const double start = now_us();
    sw::plan(from, to, options);
    samples.push_back(now_us() - start);
  }
  return median(samples);
}

void report(const std::vector<int64_t>& shape, const Pair& pair) {
  const sw::Layout from(shape, sw::DType::bf16, sw::Mesh({16, 16, 16}), pair.from);
  const sw::Layout to = from.with(pair.to);
  const Timed routes = time_routes(from, to);
  sw::PlanOptions options;
  options.topology = sw::Topology{};
  const double plan_us = time_plans(from, to, options);
  std::printf(
      "{\"shape\": \"%s\", \"from\": \"%s\", \"to\": \"%s\", \"route_us\": %.1f, \"peers\": %zu, "
      "\"plan_us\": %.1f}\n",
      shape[0] == 4096 ? "4096x4096x4096" : "1000x777x333", sw::placements_text(from).c_str(),
      sw::placements_text(to).c_str(), routes.us, routes.peers, plan_us);
}

}  // namespace

int main() {
  for (const Pair& pair : pairs()) {
    report({4096, 4096, 4096}, pair);
    report({1000, 777, 333}, pair);
  }
  return 0;
}
