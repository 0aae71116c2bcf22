#include "transport/hosts/kept_plans.h"

#include <ATen/ATen.h>

#include <cstring>
#include <span>

#include "transport/hosts/gathered_runs.h"
#include "transport/hosts/route_numbers.h"

namespace shardway {
namespace {

// When there are more, all are forgotten: a rule by which every rank keeps the same ones.
constexpr size_t kMostKept = 1024;

struct Heading {
  uint64_t hash = 0;
  int64_t length = 0;  // of the numbers that describe the parts
};

uint64_t hash_of(std::span<const int64_t> numbers) {
  uint64_t hash = shm::mark_of(uint64_t{0}, numbers.size());
  for (const int64_t number : numbers) hash = shm::mark_of(hash, static_cast<uint64_t>(number));
  return hash;
}

// Each part is the bytes of an element and the numbers of its route.
std::vector<int64_t> numbers_of(const std::vector<ToldPart>& parts) {
  std::vector<int64_t> all;
  for (const ToldPart& part : parts) {
    all.push_back(part.element_bytes);
    append_route(all, part.told);
  }
  return all;
}

std::vector<Heading> exchanged(Heading mine, Transport& inside, const Subject& subject) {
  const at::Tensor block = at::empty({int64_t{sizeof(Heading)}}, at::kByte);
  std::memcpy(block.mutable_data_ptr(), &mine, sizeof(Heading));
  const at::Tensor rows = inside.all_gather_block(block, block.numel(), subject).rows.contiguous();
  std::vector<Heading> headings(static_cast<size_t>(inside.size()));
  std::memcpy(headings.data(), rows.const_data_ptr(), headings.size() * sizeof(Heading));
  return headings;
}

// What a rank told of its parts, which are those of the same routes as this rank's own.
std::vector<ToldRoute> told_by(int64_t rank, const at::Tensor& numbers, const std::vector<ToldPart>& own,
                               int64_t ranks) {
  wire::NumberReader reader({numbers.const_data_ptr<int64_t>(), static_cast<size_t>(numbers.numel())});
  std::vector<ToldRoute> routes;
  try {
    for (const ToldPart& part : own) {
      reader.next(part.element_bytes, part.element_bytes);
      routes.push_back(next_route(reader, rank, ranks));
    }
    reader.check_end();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "rank ", rank,
                     " described an invalid part of the call, or its part of another: ", error.what());
  }
  return routes;
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

std::shared_ptr<const std::vector<TwoLevels>> KeptPlans::plans(const std::vector<ToldPart>& own,
                                                               Transport& inside, const Subject& subject) {
  const std::vector<int64_t> numbers = numbers_of(own);
  const std::vector<Heading> headings =
      exchanged({.hash = hash_of(numbers), .length = static_cast<int64_t>(numbers.size())}, inside, subject);
  std::vector<uint64_t> key;
  std::vector<int64_t> lengths;
  for (const Heading& heading : headings) {
    key.push_back(heading.hash);
    lengths.push_back(heading.length);
  }
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;

  for (size_t place = 0; place < lengths.size(); ++place) {
    TORCH_CHECK_WITH(DistBackendError, lengths[place] >= 0 && lengths[place] <= kMostRouteNumbers, "rank ",
                     mate_at(place), " describes its part of a call by ", lengths[place], " numbers");
  }
  const at::Tensor mine = at::tensor(at::ArrayRef<int64_t>(numbers), at::kLong);
  auto plans =
      std::make_shared<const std::vector<TwoLevels>>(made(own, gathered(mine, lengths, inside, subject)));
  if (kept_.size() == kMostKept) kept_.clear();
  kept_.emplace(std::move(key), plans);
  return plans;
}

std::vector<TwoLevels> KeptPlans::made(const std::vector<ToldPart>& own,
                                       const std::vector<at::Tensor>& told) const {
  std::vector<std::vector<ToldRoute>> by_part(own.size());
  for (size_t place = 0; place < told.size(); ++place) {
    std::vector<ToldRoute> routes = told_by(mate_at(place), told[place], own, hosts_.ranks());
    for (size_t i = 0; i < own.size(); ++i) by_part[i].push_back(std::move(routes[i]));
  }
  std::vector<TwoLevels> plans;
  for (size_t i = 0; i < own.size(); ++i)
    plans.push_back(planned(hosts_, rank_, by_part[i], own[i].element_bytes));
  return plans;
}

}  // namespace shardway
