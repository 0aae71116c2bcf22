#include "transport/hosts/kept_plans.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <span>

#include "transport/hosts/route_numbers.h"

namespace shardway {
namespace {

// When there are more, all are forgotten: a rule by which every rank keeps the same ones.
constexpr size_t kMostKept = 1024;

struct Heading {
  uint64_t hash = 0;
  int64_t length = 0;  // of the numbers that describe the part
};

uint64_t hash_of(std::span<const int64_t> numbers, int64_t element_bytes) {
  uint64_t hash = shm::mark_of(uint64_t{0}, static_cast<uint64_t>(element_bytes));
  for (const int64_t number : numbers) hash = shm::mark_of(hash, static_cast<uint64_t>(number));
  return hash;
}

std::vector<Heading> exchanged(Heading mine, Transport& inside, const Subject& subject) {
  const at::Tensor block = at::empty({int64_t{sizeof(Heading)}}, at::kByte);
  std::memcpy(block.mutable_data_ptr(), &mine, sizeof(Heading));
  const at::Tensor rows = inside.all_gather_block(block, block.numel(), subject).rows.contiguous();
  std::vector<Heading> headings(static_cast<size_t>(inside.size()));
  std::memcpy(headings.data(), rows.const_data_ptr(), headings.size() * sizeof(Heading));
  return headings;
}

std::vector<std::vector<int64_t>> gathered(const std::vector<int64_t>& mine,
                                           const std::vector<Heading>& headings, Transport& inside,
                                           const Subject& subject) {
  Split split{.shape = {0}, .dim = 0};
  int64_t total = 0;
  for (const Heading& heading : headings) {
    TORCH_CHECK_WITH(DistBackendError, heading.length >= 0 && heading.length <= kMostRouteNumbers,
                     "a rank of this host describes its part of a call by ", heading.length, " numbers");
    split.sizes.push_back(heading.length);
    total += heading.length;
  }
  const at::Tensor x = at::tensor(at::ArrayRef<int64_t>(mine), at::kLong);
  const at::Tensor all = at::empty({total}, at::kLong);
  inside.start(all_gather_route(split, inside.rank()), x, all, {}, subject)->finish();
  std::vector<std::vector<int64_t>> parts;
  const auto* next = all.const_data_ptr<int64_t>();
  for (const Heading& heading : headings) {
    parts.emplace_back(next, next + heading.length);
    next += heading.length;
  }
  return parts;
}

// Throws c10::ValueError, on every rank of the host, if its ranks disagree.
TwoLevels planned(const HostMap& hosts, int64_t rank, const std::vector<ToldRoute>& told,
                  int64_t element_bytes) {
  try {
    return two_levels_of(hosts, rank, told, element_bytes);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace

std::shared_ptr<const TwoLevels> KeptPlans::plan(const ToldRoute& own, int64_t element_bytes,
                                                 Transport& inside, const Subject& subject) {
  const std::vector<int64_t> numbers = numbers_of(own);
  const std::vector<Heading> headings =
      exchanged({.hash = hash_of(numbers, element_bytes), .length = static_cast<int64_t>(numbers.size())},
                inside, subject);
  std::vector<uint64_t> key;
  for (const Heading& heading : headings) key.push_back(heading.hash);
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;

  std::vector<ToldRoute> told;
  for (const auto& part : gathered(numbers, headings, inside, subject)) {
    const int64_t mate = hosts_.ranks_of(hosts_.host_of(rank_))[told.size()];
    told.push_back(route_of_numbers(part, mate, hosts_.ranks()));
  }
  auto plan = std::make_shared<const TwoLevels>(planned(hosts_, rank_, told, element_bytes));
  if (kept_.size() == kMostKept) kept_.clear();
  kept_.emplace(std::move(key), plan);
  return plan;
}

}  // namespace shardway
