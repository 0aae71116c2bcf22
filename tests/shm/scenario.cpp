#include "scenario.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <stdexcept>

namespace shardway::testing {
namespace {

using Values = std::vector<int32_t>;

int64_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Of the element `at` in the box that begins at `offset`.
size_t index_of(const Shape& at, const Shape& offset, const Shape& shape) {
  int64_t index = 0;
  for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + offset[d] + at[d];
  return static_cast<size_t>(index);
}

// The first element of every row of a box.
template <class Visit>
void walk_rows(const Shape& extent, const Visit& visit) {
  Shape at(extent.size(), 0);
  for (int64_t left = count_of(extent); left > 0; left -= extent.back()) {
    visit(at);
    for (size_t d = at.size() - 1; d-- > 0 && ++at[d] == extent[d];) at[d] = 0;
  }
}

Values input_of(int64_t rank, const Shape& shape, int time) {
  Values values(static_cast<size_t>(count_of(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<int32_t>((i * 2654435761U + static_cast<size_t>(rank * 977 + time * 131)) % 100003);
  return values;
}

constexpr int32_t kUntouched = -7;

Values expected_of(const Scenario& scenario, int64_t rank, int time) {
  const Shape& shape = scenario.outputs[static_cast<size_t>(rank)];
  Values result(static_cast<size_t>(count_of(shape)), kUntouched);
  std::vector<bool> landed(result.size(), false);
  for (const Moved& move : scenario.moves) {
    if (move.to != rank) continue;
    const Shape& input_shape = scenario.inputs[static_cast<size_t>(move.from)];
    const Values input = input_of(move.from, input_shape, time);
    walk_rows(move.extent, [&](const Shape& at) {
      size_t to = index_of(at, move.target, shape);
      size_t from = index_of(at, move.source, input_shape);
      for (int64_t i = 0; i < move.extent.back(); ++i, ++to, ++from) {
        result[to] = landed[to] ? result[to] + input[from] : input[from];
        landed[to] = true;
      }
    });
  }
  return result;
}

shm::FixedDims strides_of(const Shape& shape, bool is_transposed) {
  if (!is_transposed) return shm::packed_strides(shm::FixedDims(shape), 4);
  shm::FixedDims strides = shm::FixedDims::zeros(shape.size());
  int64_t bytes = 4;
  for (size_t d = 0; d < shape.size(); ++d) {
    strides[d] = bytes;
    bytes *= shape[d];
  }
  return strides;
}

// This rank's part; pulls that land on one element become one landing when their boxes are equal.
shm::Part part_of(const Scenario& scenario, int64_t rank) {
  shm::Part part{.element_bytes = 4};
  for (const Moved& move : scenario.moves) {
    if (move.from == rank)
      part.pushes.push_back({.peer = move.to, .from = move.source, .extent = move.extent});
    if (move.to != rank) continue;
    shm::Pull pull{.peer = move.from, .from = move.source, .to = move.target, .extent = move.extent};
    if (!scenario.offsets_known && move.from != rank) pull.from[0] = shm::kUnknown;
    part.pulls.push_back(pull);
  }
  part.lists_offsets = !scenario.offsets_known;
  const auto by_peer = [](const auto& a, const auto& b) { return a.peer < b.peer; };
  std::stable_sort(part.pulls.begin(), part.pulls.end(), by_peer);
  std::stable_sort(part.pushes.begin(), part.pushes.end(), by_peer);
  if (!scenario.adds) return part;
  part.combine = shm::Combine{.element = shm::Element::i32};
  part.is_reduce_scatter = scenario.is_reduce_scatter;
  for (size_t i = 0; i < part.pulls.size(); ++i) {
    const shm::Pull& pull = part.pulls[i];
    if (shm::volume(pull.extent) == 0) continue;
    auto same =
        std::find_if(part.landings.begin(), part.landings.end(), [&](const shm::PartLanding& landing) {
          return landing.to == pull.to && landing.extent == pull.extent;
        });
    if (same == part.landings.end())
      same = part.landings.insert(same, {.to = pull.to, .extent = pull.extent, .addends = {}});
    same->addends.push_back(
        {.pull = static_cast<int64_t>(i), .from = shm::FixedDims::zeros(pull.extent.size())});
  }
  return part;
}

// Memory of a rank's input, in its arena or outside.
class Room {
 public:
  Room(shm::Arena& arena, Where where, size_t elements)
      : arena_(arena), private_(where == Where::anywhere ? elements : 0) {
    data_ = where == Where::arena ? arena.allocate(static_cast<int64_t>(elements * 4))
                                  : reinterpret_cast<std::byte*>(private_.data());
    is_shared_ = where == Where::arena;
  }
  ~Room() {
    if (is_shared_) arena_.free(data_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  std::byte* data() { return data_; }

 private:
  shm::Arena& arena_;
  Values private_;
  std::byte* data_ = nullptr;
  bool is_shared_ = false;
};

void lay_out(const Values& values, const Shape& shape, const shm::FixedDims& strides, std::byte* to) {
  size_t next = 0;
  walk_rows(shape, [&](const Shape& at) {
    std::byte* row = to;
    for (size_t d = 0; d < at.size(); ++d) row += at[d] * strides[d];
    for (int64_t i = 0; i < shape.back(); ++i)
      std::memcpy(row + i * strides[shape.size() - 1], &values[next++], 4);
  });
}

// A rank's side of a scenario, with its memory.
class Side {
 public:
  Side(shm::SharedGroup& group, const Scenario& scenario)
      : scenario_(scenario),
        rank_(group.rank()),
        shape_(scenario.inputs[static_cast<size_t>(rank_)]),
        room_(*group.arena(),
              scenario.where.empty() ? Where::anywhere : scenario.where[static_cast<size_t>(rank_)],
              static_cast<size_t>(count_of(shape_))),
        part_(part_of(scenario, rank_)) {
    part_.input.shape = shm::FixedDims(shape_);
    part_.input.strides = strides_of(shape_, scenario.is_transposed);
    part_.input.data = room_.data();
    own_ = part_.input;
    for (shm::Pull& pull : part_.pulls) {
      if (pull.peer == rank_) pull.here = &own_;
    }
    part_.output_strides = strides_of(scenario.outputs[static_cast<size_t>(rank_)], false);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const shm::Part& part() const { return part_; }

  void fill(int time) {
    lay_out(input_of(rank_, shape_, time), shape_, part_.input.strides, room_.data());
    output_.assign(static_cast<size_t>(count_of(scenario_.outputs[static_cast<size_t>(rank_)])), kUntouched);
    part_.output = reinterpret_cast<std::byte*>(output_.data());
  }

  void check(int time) {
    const Values input = input_of(rank_, shape_, time);
    Values after(input.size());
    lay_out(input, shape_, part_.input.strides, reinterpret_cast<std::byte*>(after.data()));
    if (!input.empty()) {
      if (std::memcmp(after.data(), room_.data(), input.size() * 4) != 0)
        throw std::runtime_error("the input has changed");
      std::memset(room_.data(), 0, input.size() * 4);  // the input is free again: nobody may see this
    }
    if (output_ != expected_of(scenario_, rank_, time))
      throw std::runtime_error("rank " + std::to_string(rank_) + ", time " + std::to_string(time) +
                               ": the output differs from the reference");
  }

 private:
  const Scenario& scenario_;
  int64_t rank_;
  const Shape& shape_;
  Room room_;
  shm::Part part_;
  shm::Input own_;
  Values output_;
};

}  // namespace

void run_scenario(shm::SharedGroup& group, const Scenario& scenario, int times) {
  Side side(group, scenario);
  for (int time = 0; time < times; ++time) {
    side.fill(time);
    group.run(side.part());
    side.check(time);
  }
}

void run_scenarios_at_once(shm::SharedGroup& group, const std::vector<Scenario>& scenarios, int times) {
  std::deque<Side> sides;
  shm::PartList parts;
  for (const Scenario& scenario : scenarios) parts.push_back(&sides.emplace_back(group, scenario).part());
  for (int time = 0; time < times; ++time) {
    for (Side& side : sides) side.fill(time);
    group.run(parts);
    for (Side& side : sides) side.check(time);
  }
}

Scenario gather(const Shape& shape, int64_t dim, const std::vector<int64_t>& sizes) {
  const auto d = static_cast<size_t>(dim);
  const auto ranks = static_cast<int64_t>(sizes.size());
  Scenario scenario;
  Shape whole = shape;
  whole[d] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  scenario.outputs.assign(sizes.size(), whole);
  Shape target(shape.size(), 0);
  for (int64_t from = 0; from < ranks; ++from) {
    Shape extent = shape;
    extent[d] = sizes[static_cast<size_t>(from)];
    scenario.inputs.push_back(extent);
    for (int64_t to = 0; to < ranks; ++to)
      scenario.moves.push_back({from, Shape(shape.size(), 0), to, target, extent});
    target[d] += extent[d];
  }
  return scenario;
}

Scenario reduce_scatter(const Shape& shape, int64_t dim, const std::vector<int64_t>& sizes) {
  const auto d = static_cast<size_t>(dim);
  const auto ranks = static_cast<int64_t>(sizes.size());
  Scenario scenario{.adds = true, .is_reduce_scatter = true};
  Shape whole = shape;
  whole[d] = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  scenario.inputs.assign(sizes.size(), whole);
  Shape source(shape.size(), 0);
  for (int64_t to = 0; to < ranks; ++to) {
    Shape extent = shape;
    extent[d] = sizes[static_cast<size_t>(to)];
    scenario.outputs.push_back(extent);
    for (int64_t from = 0; from < ranks; ++from)
      scenario.moves.push_back({from, source, to, Shape(shape.size(), 0), extent});
    source[d] += extent[d];
  }
  return scenario;
}

// Rank a sends (a + 2b) % 3 times `rows` rows to rank b.
Scenario all_to_all(int64_t ranks, int64_t rows, int64_t columns) {
  const auto block = [&](int64_t a, int64_t b) { return (a + 2 * b) % 3 * rows; };
  Scenario scenario;
  for (int64_t a = 0; a < ranks; ++a) {
    Shape input{0, columns};
    Shape output{0, columns};
    for (int64_t b = 0; b < ranks; ++b) {
      input[0] += block(a, b);
      output[0] += block(b, a);
    }
    scenario.inputs.push_back(input);
    scenario.outputs.push_back(output);
  }
  std::vector<int64_t> landed(static_cast<size_t>(ranks), 0);
  for (int64_t a = 0; a < ranks; ++a) {
    int64_t sent = 0;
    for (int64_t b = 0; b < ranks; ++b) {
      scenario.moves.push_back(
          {a, {sent, 0}, b, {landed[static_cast<size_t>(b)], 0}, {block(a, b), columns}});
      sent += block(a, b);
      landed[static_cast<size_t>(b)] += block(a, b);
    }
  }
  return scenario;
}

}  // namespace shardway::testing
