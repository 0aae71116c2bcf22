#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "plan/geometry/number_text.h"
#include "shardway/layout.h"

namespace shardway {
namespace {

// Ranks are numbers of processes: more than this is a mistake.
constexpr int64_t kMostRanks = int64_t{1} << 20;

std::vector<int64_t> first_ranks(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 1) {
      throw std::invalid_argument("mesh: dim " + std::to_string(dim) + " has " + std::to_string(shape[dim]) +
                                  " ranks; it needs at least 1");
    }
    if (shape[dim] > kMostRanks / size) {
      throw std::invalid_argument("mesh: " + join(shape, "x") + " is more than " +
                                  std::to_string(kMostRanks) + " ranks");
    }
    size *= shape[dim];
  }
  std::vector<int64_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void check_names(const std::vector<std::string>& names, size_t ndim) {
  if (names.empty()) return;
  if (names.size() != ndim) {
    throw std::invalid_argument("mesh: " + std::to_string(names.size()) + " names for " +
                                std::to_string(ndim) + " dims");
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      throw std::invalid_argument("mesh: dim " + std::to_string(i) + " has an empty name");
    if (std::find(names.begin(), names.begin() + static_cast<int64_t>(i), names[i]) !=
        names.begin() + static_cast<int64_t>(i)) {
      throw std::invalid_argument("mesh: two dims have the name '" + names[i] + "'");
    }
  }
}

// Position of each rank, -1 where there is none; empty when position i holds rank i.
std::vector<int64_t> positions(const std::vector<int64_t>& ranks) {
  bool is_identity = true;
  int64_t largest = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t rank = ranks[i];
    if (rank < 0 || rank >= kMostRanks) {
      throw std::invalid_argument("mesh: rank " + std::to_string(rank) + " is not in [0, " +
                                  std::to_string(kMostRanks) + ")");
    }
    is_identity = is_identity && rank == static_cast<int64_t>(i);
    largest = std::max(largest, rank);
  }
  if (is_identity) return {};
  std::vector<int64_t> position_of_rank(static_cast<size_t>(largest) + 1, -1);
  for (size_t i = 0; i < ranks.size(); ++i) {
    int64_t& position = position_of_rank[static_cast<size_t>(ranks[i])];
    if (position >= 0) {
      throw std::invalid_argument("mesh: rank " + std::to_string(ranks[i]) + " stands at positions " +
                                  std::to_string(position) + " and " + std::to_string(i));
    }
    position = static_cast<int64_t>(i);
  }
  return position_of_rank;
}

}  // namespace

Mesh::Mesh(std::vector<int64_t> shape, std::vector<std::string> names)
    : shape_(std::move(shape)), ranks_(first_ranks(shape_)), names_(std::move(names)) {
  check_names(names_, shape_.size());
}

Mesh::Mesh(std::vector<int64_t> shape, std::vector<int64_t> ranks, std::vector<std::string> names)
    : shape_(std::move(shape)), ranks_(std::move(ranks)), names_(std::move(names)) {
  check_names(names_, shape_.size());
  const size_t size = first_ranks(shape_).size();
  if (ranks_.size() != size) {
    throw std::invalid_argument("mesh: " + join(shape_, "x") + " needs " + std::to_string(size) +
                                " ranks, not " + std::to_string(ranks_.size()));
  }
  position_of_rank_ = positions(ranks_);
}

std::optional<int64_t> Mesh::position_of(int64_t rank) const {
  if (rank < 0) return std::nullopt;
  if (position_of_rank_.empty()) return rank < size() ? std::optional(rank) : std::nullopt;
  if (rank >= static_cast<int64_t>(position_of_rank_.size())) return std::nullopt;
  const int64_t position = position_of_rank_[static_cast<size_t>(rank)];
  return position < 0 ? std::nullopt : std::optional(position);
}

std::vector<int64_t> Mesh::coordinate_at(int64_t position) const {
  std::vector<int64_t> coordinate(shape_.size());
  for (size_t dim = shape_.size(); dim-- > 0;) {
    coordinate[dim] = position % shape_[dim];
    position /= shape_[dim];
  }
  return coordinate;
}

int64_t Mesh::stride(int64_t dim) const {
  int64_t stride = 1;
  for (int64_t inner = dim + 1; inner < ndim(); ++inner) stride *= size(inner);
  return stride;
}

int64_t Mesh::dim_named(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    throw std::invalid_argument("mesh: no dim is named '" + name + "'" +
                                (names_.empty() ? "; its dims have no names" : " in " + to_string(*this)));
  }
  return found - names_.begin();
}

Mesh Mesh::submesh(const std::vector<int64_t>& dims, int64_t rank) const {
  const std::optional<int64_t> position = position_of(rank);
  if (!position) throw std::invalid_argument("mesh: rank " + std::to_string(rank) + " is outside the mesh");
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i];
    if (dim < 0 || dim >= ndim() ||
        std::find(dims.begin(), dims.begin() + static_cast<int64_t>(i), dim) !=
            dims.begin() + static_cast<int64_t>(i)) {
      throw std::invalid_argument("mesh: submesh dims " + join(dims, ",") + " are not distinct dims of a " +
                                  std::to_string(ndim()) + "-d mesh");
    }
    shape.push_back(size(dim));
    if (!names_.empty()) names.push_back(names_[static_cast<size_t>(dim)]);
  }
  std::vector<int64_t> coordinate = coordinate_at(*position);
  std::vector<int64_t> ranks = first_ranks(shape);
  const Mesh grid(shape);
  for (int64_t& entry : ranks) {
    const std::vector<int64_t> inner = grid.coordinate_at(entry);
    for (size_t i = 0; i < dims.size(); ++i) coordinate[static_cast<size_t>(dims[i])] = inner[i];
    int64_t place = 0;
    for (size_t d = 0; d < shape_.size(); ++d) place = place * shape_[d] + coordinate[d];
    entry = ranks_[static_cast<size_t>(place)];
  }
  return {std::move(shape), std::move(ranks), std::move(names)};
}

Mesh Mesh::flattened(int64_t first, int64_t last) const {
  if (first < 0 || last >= ndim() || first > last) {
    throw std::invalid_argument("mesh: dims " + std::to_string(first) + " to " + std::to_string(last) +
                                " are not neighbouring dims of a " + std::to_string(ndim()) + "-d mesh");
  }
  std::vector<int64_t> shape(shape_.begin(), shape_.begin() + first);
  std::vector<std::string> names;
  if (!names_.empty()) names.assign(names_.begin(), names_.begin() + first);
  shape.push_back(
      std::accumulate(shape_.begin() + first, shape_.begin() + last + 1, int64_t{1}, std::multiplies<>()));
  if (!names_.empty()) {
    names.push_back(join(std::vector(names_.begin() + first, names_.begin() + last + 1), "_"));
    names.insert(names.end(), names_.begin() + last + 1, names_.end());
  }
  shape.insert(shape.end(), shape_.begin() + last + 1, shape_.end());
  return {std::move(shape), ranks_, std::move(names)};
}

std::string to_string(const Mesh& mesh) {
  if (mesh.names().empty()) return join(mesh.shape(), "x");
  std::string text;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    text +=
        (dim == 0 ? "" : ",") + mesh.names()[static_cast<size_t>(dim)] + "=" + std::to_string(mesh.size(dim));
  }
  return text;
}

}  // namespace shardway
