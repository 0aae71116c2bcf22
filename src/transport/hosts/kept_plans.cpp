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

// Each part is its length, the bytes of an element, and the numbers of its route.
std::vector<int64_t> numbers_of(const std::vector<ToldPart>& parts) {
  std::vector<int64_t> all;
  for (const ToldPart& part : parts) {
    const std::vector<int64_t> numbers = numbers_of(part.told);
    all.push_back(static_cast<int64_t>(numbers.size()));
    all.push_back(part.element_bytes);
    all.insert(all.end(), numbers.begin(), numbers.end());
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

// What one rank told of its parts, part by part.
class ToldNumbers {
 public:
  ToldNumbers(const at::Tensor& run, int64_t rank)
      : left_(run.const_data_ptr<int64_t>(), static_cast<size_t>(run.numel())), rank_(rank) {}

  ToldRoute next(int64_t element_bytes, int64_t ranks) {
    check(left_.size() >= 2 && left_[0] >= 0 && static_cast<size_t>(left_[0]) <= left_.size() - 2 &&
          left_[1] == element_bytes);
    const auto length = static_cast<size_t>(left_[0]);
    ToldRoute route = route_of_numbers(left_.subspan(2, length), rank_, ranks);
    left_ = left_.subspan(2 + length);
    return route;
  }

  void check_end() const { check(left_.empty()); }

 private:
  void check(bool is_fine) const {
    TORCH_CHECK_WITH(DistBackendError, is_fine, "rank ", rank_, " described its part of another call");
  }

  std::span<const int64_t> left_;
  int64_t rank_;
};

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
  std::vector<ToldNumbers> by_place;
  for (size_t place = 0; place < told.size(); ++place) by_place.emplace_back(told[place], mate_at(place));
  std::vector<TwoLevels> plans;
  for (const ToldPart& part : own) {
    std::vector<ToldRoute> routes;
    for (ToldNumbers& numbers : by_place) routes.push_back(numbers.next(part.element_bytes, hosts_.ranks()));
    plans.push_back(planned(hosts_, rank_, routes, part.element_bytes));
  }
  for (const ToldNumbers& numbers : by_place) numbers.check_end();
  return plans;
}

}  // namespace shardway
