// Checks of a caller's arguments. Each throws BadArgument that says what is wrong and what would be right;
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

// The tensor is dense, and a block can describe its number of dims.
void check_dense(const at::Tensor& x, const char* name);

// The group can move the tensor. Collective if the group has yet to find out what it can move.
void check_movable(const at::Tensor& x, const Group& group, const char* name = "x");

// Returns the rank within the group that `global` means, or `in_group` if given. `name` is "src" or "dst".
[[gnu::visibility("default")]] int64_t checked_root(const std::string& name, int64_t global,
                                                    std::optional<int64_t> in_group, const Group& group);

// Returns the dim counted from the front. Checks that the tensor can be moved, too.
int64_t checked_dim(const at::Tensor& x, int64_t dim, const Group& group);

// There is one size per rank, and none is negative.
void check_size_list(const char* name, const Sizes& sizes, const Group& group);

// The sizes add up to the tensor's extent along dim.
void check_split(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group);

// The sizes can be gathered, and this rank's entry is its own size.
void check_gathered(const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group);

// Returns the sum of the sizes. Throws if a tensor like x with that extent along dim is too large to exist.
int64_t checked_total(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim);

// The elements of `out` share memory neither with one another nor with x. Strided views that interleave
// count as sharing.
void check_apart(const at::Tensor& out, const at::Tensor& x);

// `out` fits x in everything that does not depend on the sizes: all but its extent along dim.
void check_out(const at::Tensor& out, const at::Tensor& x, int64_t dim);

// The op supports the dtype, and the gradient if one is required.
void check_reduction(const at::Tensor& x, Op op);

// Returns a tensor in plain memory: lazily conjugated or negated views, and zeros without memory, are
// computed.
at::Tensor materialized(const at::Tensor& x);

// Throws c10::ValueError that names op, problem and rank.
[[noreturn]] [[gnu::visibility("default")]] void raise(const std::string& op, const std::string& problem,
                                                       int64_t rank);

// Returns what `check` found wrong; empty if nothing.
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

// Returns what to append to an error that names ranks by their numbers in the group. Empty if these are also
// their global numbers.
std::string numbering_of(const std::vector<int64_t>& global_ranks);

}  // namespace shardway
