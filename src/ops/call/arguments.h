// Checks of what a caller passed. Each throws BadArgument with what is wrong and what would be right;
// the op that asked adds its name and the rank, and tells the other ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "shardway/collectives.h"

namespace shardway {

class BadArgument : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Dense elements in memory, of as many dims as can be told.
void check_dense(const at::Tensor& x, const char* name);

// A tensor that the group can move: collective where that has to be found out first.
void check_movable(const at::Tensor& x, const Group& group, const char* name = "x");

// The rank within the group that `global` means, or `in_group` where that is given. `name` is "src" or "dst".
[[gnu::visibility("default")]] int64_t checked_root(const std::string& name, int64_t global,
                                                    std::optional<int64_t> in_group, const Group& group);

// The dim counted from the front, of a tensor that can be moved.
int64_t checked_dim(const at::Tensor& x, int64_t dim, const Group& group);

// One size per rank, none negative.
void check_size_list(const char* name, const Sizes& sizes, const Group& group);

// Sizes that add up to the tensor's extent along dim.
void check_split(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group);

// Sizes that can be gathered, of which this rank's is its own.
void check_gathered(const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group);

// The sum of the sizes, when a tensor like x with that extent along dim can be.
int64_t checked_total(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim);

// A result whose elements share memory neither with one another nor with x. Strided views that interleave
// count as sharing.
void check_apart(const at::Tensor& out, const at::Tensor& x);

// What of `out` must be right whatever the sizes are: everything but its extent along dim.
void check_out(const at::Tensor& out, const at::Tensor& x, int64_t dim);

// A dtype and a gradient that the op can do.
void check_reduction(const at::Tensor& x, Op op);

// Plain memory: views that conjugate or negate lazily, and zeros without memory, are made real.
at::Tensor materialized(const at::Tensor& x);

// Throws c10::ValueError: op, problem, rank.
[[noreturn]] [[gnu::visibility("default")]] void raise(const std::string& op, const std::string& problem,
                                                       int64_t rank);

// What `check` found wrong; empty when nothing was.
template <class Check>
std::string problem_in(Check&& check) {
  try {
    check();
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

// Runs `body`; an engine's error gets the op's name in front.
template <class Body>
auto named(const char* op, Body&& body) {
  try {
    return body();
  } catch (const c10::DistBackendError& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, ": ", error.what_without_backtrace());
  }
}

[[gnu::visibility("default")]] std::string dtype_name(at::ScalarType dtype);

// What an error adds that names ranks of a group by their numbers in it; empty where those are the job's too.
std::string numbering_of(const std::vector<int64_t>& global_ranks);

}  // namespace shardway
