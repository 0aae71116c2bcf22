#include "shardway/route.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardway {
namespace {

constexpr std::pair<Op, const char*> kOpNames[] = {
    {Op::sum, "sum"}, {Op::avg, "avg"}, {Op::min, "min"}, {Op::max, "max"}, {Op::product, "product"}};

Pattern transposed(Pattern pattern) {
  switch (pattern) {
    case Pattern::all_gather:
      return Pattern::reduce_scatter;
    case Pattern::reduce_scatter:
      return Pattern::all_gather;
    case Pattern::broadcast:
      return Pattern::exchange;
    default:
      return pattern;
  }
}

[[noreturn]] void refuse(const char* list, size_t index, const Move& move, const std::string& why) {
  throw std::invalid_argument("route: " + std::string(list) + "[" + std::to_string(index) + "] with rank " +
                              std::to_string(move.peer) + " " + why);
}

void validate_moves(const Route& route, const Moves& moves, const std::vector<int64_t>& shape,
                    const char* list) {
  const Box whole = Box::whole(shape);
  int64_t previous = 0;
  for (size_t i = 0; i < moves.size(); ++i) {
    const Move& move = moves[i];
    if (move.peer < 0 || move.peer >= route.size)
      refuse(list, i, move, "names no rank of " + std::to_string(route.size));
    if (move.peer < previous) refuse(list, i, move, "is out of rank order");
    previous = move.peer;
    const size_t dims = shape.size();
    if (move.mine.offset.size() != dims || move.mine.extent.size() != dims) {
      refuse(list, i, move, "has a box of another number of dims than its tensor");
    }
    if (std::any_of(move.mine.extent.begin(), move.mine.extent.end(), [](int64_t n) { return n < 0; })) {
      refuse(list, i, move, "has a box of negative extent: " + to_string(move.mine));
    }
    if (!contains(whole, move.mine)) {
      refuse(list, i, move,
             "has the box " + to_string(move.mine) + " outside its tensor " + to_string(whole));
    }
    if (move.theirs.offset.size() != dims || move.theirs.extent.size() != dims) {
      refuse(list, i, move, "has boxes of different numbers of dims");
    }
    if (move.mine.extent != move.theirs.extent) {
      refuse(list, i, move,
             "has boxes of different extent: " + to_string(move.mine) + " and " + to_string(move.theirs));
    }
  }
}

Moves own_moves(const Moves& moves, int64_t rank) {
  Moves own;
  std::copy_if(moves.begin(), moves.end(), std::back_inserter(own),
               [rank](const Move& m) { return m.peer == rank; });
  return own;
}

// Engines read what a rank gives itself from the pulls only, so the pushes must say the same.
void validate_own_moves(const Route& route) {
  const Moves pulls = own_moves(route.pulls, route.rank);
  const Moves pushes = own_moves(route.pushes, route.rank);
  const auto same = [](const Move& a, const Move& b) { return a.mine == b.theirs && a.theirs == b.mine; };
  if (!std::equal(pulls.begin(), pulls.end(), pushes.begin(), pushes.end(), same)) {
    throw std::invalid_argument("route: the pulls of rank " + std::to_string(route.rank) +
                                " from itself are not its pushes to itself");
  }
}

}  // namespace

const char* name_of(Op op) {
  for (const auto& [candidate, name] : kOpNames) {
    if (candidate == op) return name;
  }
  return "unknown";
}

Op op_from_name(const std::string& name) {
  if (name == "mean") return Op::avg;
  for (const auto& [op, candidate] : kOpNames) {
    if (name == candidate) return op;
  }
  throw std::invalid_argument("op='" + name + "' is not one of sum, avg (or mean), min, max, product");
}

Route transposed(const Route& route) {
  if (route.op != Op::sum) {
    throw std::invalid_argument(std::string("route: ") + name_of(route.op) +
                                " is not linear and has no adjoint");
  }
  Route result = route;
  std::swap(result.input_shape, result.output_shape);
  std::swap(result.pulls, result.pushes);
  result.pattern = transposed(route.pattern);
  return result;
}

Route own_part(const Route& route) {
  Route result = route;
  result.pulls = own_moves(route.pulls, route.rank);
  result.pushes = own_moves(route.pushes, route.rank);
  result.pattern = Pattern::own;
  return result;
}

void validate(const Route& route) {
  if (route.size < 1 || route.rank < 0 || route.rank >= route.size) {
    throw std::invalid_argument("route: rank " + std::to_string(route.rank) + " is not one of " +
                                std::to_string(route.size));
  }
  if (route.op == Op::avg) throw std::invalid_argument("route: avg is written as sum with a divisor");
  if (route.divisor < 1)
    throw std::invalid_argument("route: divisor " + std::to_string(route.divisor) + " is below 1");
  validate_moves(route, route.pulls, route.output_shape, "pulls");
  validate_moves(route, route.pushes, route.input_shape, "pushes");
  validate_own_moves(route);
}

}  // namespace shardway
