// Destinations that are functions: what has come is handed over, and the first failure is kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "shardway/link.h"

namespace shardway::link {

using LoadsByName = std::map<std::string, Load>;

// What comes for a Load: this rank's piece of a tensor, in the publisher's dtype.
struct LoadPiece {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;

  int64_t elements() const;
  int64_t bytes() const { return elements() * static_cast<int64_t>(c10::elementSize(dtype)); }
};

// Those that come together, in the order in which the role declares them.
using LoadPieces = std::vector<LoadPiece>;

int64_t bytes_of(const LoadPieces& pieces);

// Hands what has come to the functions of a rank's Loads, in one buffer that all portions use. After a
// failure it only takes part: the other ranks still move the rest of the version.
class [[gnu::visibility("default")]] Loader {
 public:
  explicit Loader(LoadsByName loads) : loads_(std::move(loads)) {}

  // Makes room for these pieces, beside none that come at another time. Called before any are placed.
  void make_room(const LoadPieces& pieces);

  // Where in the buffer the pieces lie. Those with large elements come first, so that all are aligned with
  // nothing between them.
  std::vector<at::Tensor> places(const LoadPieces& pieces) const;

  // Another version begins.
  void begin() { failure_ = nullptr; }

  // Calls the functions with what has come to these places.
  void take(const LoadPieces& pieces, const std::vector<at::Tensor>& places);

  // What a function threw, if it is a std::exception, and for which name.
  const std::exception_ptr& failure() const { return failure_; }
  const std::string& failed_name() const { return failed_name_; }

 private:
  at::Tensor as_wanted(const at::Tensor& piece, DType dtype) const;

  LoadsByName loads_;
  at::Tensor buffer_;
  at::Tensor cast_;  // where a piece lies whose dtype changes
  std::exception_ptr failure_;
  std::string failed_name_;
};

}  // namespace shardway::link
