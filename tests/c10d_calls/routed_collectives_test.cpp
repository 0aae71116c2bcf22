// The collectives as routes give what they give in memory.
#include "c10d_calls/routed_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "c10d_calls/memory_collectives.h"
#include "rank_runner.h"
#include "transport/shm/shm.h"

namespace shardway::testing {
namespace {

using backend::Collectives;
using backend::Tensors;
using c10d::ReduceOp;

class RoutedCalls : public ::testing::TestWithParam<int64_t> {};

// What a rank brings and gets, of some number of rows.
class Bodies {
 public:
  Bodies(int64_t rank, int64_t size, int64_t rows, at::ScalarType dtype)
      : rank_(rank), size_(size), rows_(rows), options_(at::dtype(dtype)) {}

  // The results of every collective, one after another.
  Tensors results(Collectives& calls) const {
    Tensors all;
    for (const auto op : {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::BAND}) {
      if (op == ReduceOp::BAND && at::isFloatingType(c10::typeMetaToScalarType(options_.dtype()))) continue;
      at::Tensor t = own(rows_, 0);
      calls.all_reduce(t, op);
      all.push_back(t);
      t = own(rows_, 1).t();
      calls.reduce(t, op, size_ - 1);
      all.push_back(t);
      at::Tensor part = at::empty({rows_, 3}, options_);
      calls.reduce_scatter_single(part, own(rows_ * size_, 2), op);
      all.push_back(part.clone());
      calls.reduce_scatter(part, own(rows_ * size_, 3).chunk(size_), op);
      all.push_back(part);
    }
    moves(calls, all);
    return all;
  }

 private:
  at::Tensor own(int64_t rows, int64_t salt) const {
    return at::arange(rows * 3, at::kLong)
        .remainder(3)
        .add(rank_ + salt + 1)
        .view({rows, 3})
        .to(options_.dtype());
  }

  void moves(Collectives& calls, Tensors& all) const {
    at::Tensor t = own(rows_, 4);
    calls.broadcast(t, size_ - 1);
    all.push_back(t);
    at::Tensor gathered = at::empty({rows_ * size_, 3}, options_);
    calls.all_gather_single(gathered, own(rows_, 5));
    all.push_back(gathered);
    Tensors parts;
    for (int64_t rank = 0; rank < size_; ++rank) parts.push_back(at::zeros({rows_ + rank, 3}, options_));
    calls.all_gather(parts, own(rows_ + rank_, 6));
    all.insert(all.end(), parts.begin(), parts.end());
    const bool is_root = rank_ == size_ - 1;
    for (at::Tensor& part : parts) part = at::zeros_like(part);
    calls.gather(is_root ? parts : Tensors{}, own(rows_ + rank_, 7), size_ - 1);
    all.insert(all.end(), parts.begin(), parts.end());
    t = at::empty({rows_ + rank_, 3}, options_);
    calls.scatter(t, is_root ? parts : Tensors{}, size_ - 1);
    all.push_back(t);
    std::vector<int64_t> sends;
    std::vector<int64_t> takes;
    for (int64_t rank = 0; rank < size_; ++rank) {
      sends.push_back(rows_ + rank);
      takes.push_back(rows_ + rank_);
    }
    t = at::empty({(rows_ + rank_) * size_, 3}, options_);
    const at::Tensor x = own(rows_ * size_ + size_ * (size_ - 1) / 2, 8);
    calls.all_to_all_single(t, x, takes, sends);
    all.push_back(t.clone());
    calls.all_to_all(t.split(rows_ + rank_ > 0 ? rows_ + rank_ : 1), x.split_with_sizes(sends));
    all.push_back(t);
    calls.barrier();
  }

  int64_t rank_;
  int64_t size_;
  int64_t rows_;
  at::TensorOptions options_;
};

// The runner owns the group; the engine only borrows it.
void run(int64_t ranks, const std::function<void(ShmEngine&, Transport&)>& body) {
  EXPECT_NO_THROW(run_threads(ranks, [&](shm::SharedGroup& group) {
    const auto engine =
        std::make_shared<ShmEngine>(std::shared_ptr<shm::SharedGroup>(std::shared_ptr<void>(), &group));
    body(*engine, *make_shm_transport(engine));
  }));
}

TEST_P(RoutedCalls, EqualThoseInMemory) {
  run(GetParam(), [](ShmEngine& engine, Transport& transport) {
    backend::Table table(transport.size());
    backend::DeviceCollectives routed(transport, engine, table);
    for (const auto dtype : {at::kFloat, at::kLong, at::kBFloat16}) {
      for (const int64_t rows : {1, 5, 7000}) {
        const Bodies bodies(transport.rank(), transport.size(), rows, dtype);
        const Tensors got = bodies.results(routed);
        Tensors want;
        engine.in_turn([&](shm::SharedGroup& group) {
          backend::MemoryCollectives memory(group, table);
          want = bodies.results(memory);
        });
        require(got.size() == want.size(), "a result is missing");
        for (size_t i = 0; i < got.size(); ++i)
          require(got[i].equal(want[i]),
                  "result " + std::to_string(i) + " of " + std::to_string(rows) + " rows");
      }
    }
  });
}

TEST_P(RoutedCalls, TakeALazilyConjugatedTensorForItsValues) {
  run(GetParam(), [](ShmEngine& engine, Transport& transport) {
    backend::Table table(transport.size());
    backend::DeviceCollectives routed(transport, engine, table);
    const auto number = [](int64_t re, int64_t im) {
      return at::full({3}, c10::complex<double>(static_cast<double>(re), static_cast<double>(im)),
                      at::kComplexDouble);
    };
    const auto own = [&] { return number(1, 1 + transport.rank()).conj(); };
    const int64_t ranks = transport.size();
    const at::Tensor sum = number(ranks, -ranks * (ranks + 1) / 2);
    at::Tensor t = own();
    routed.broadcast(t, 0);
    require(t.equal(number(1, -1)), "broadcast");
    t = own();
    routed.all_reduce(t, ReduceOp::SUM);
    require(t.equal(sum), "all_reduce");
    t = own();
    routed.reduce(t, ReduceOp::SUM, 0);
    require(t.equal(transport.rank() == 0 ? sum : own()), "reduce");
  });
}

TEST_P(RoutedCalls, OnADeviceDoNotMatchThoseOnTheCpu) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  run(GetParam(), [](ShmEngine& engine, Transport& transport) {
    const bool is_other = transport.rank() == 1;
    backend::Table table(transport.size(), is_other ? c10::DeviceType::CUDA : c10::DeviceType::CPU);
    bool is_refused = false;
    try {
      engine.in_turn([&](shm::SharedGroup& group) {
        table.run(group, Collective::dist_all_reduce, [] { return backend::Prepared{}; });
      });
    } catch (const c10::ValueError& error) {
      is_refused = std::string(error.what()).find("on a GPU") != std::string::npos;
    }
    require(is_refused, "a call on a GPU met one on the CPU");
  });
}

INSTANTIATE_TEST_SUITE_P(, RoutedCalls, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
