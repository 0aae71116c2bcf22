#include "transport/hosts/route_numbers.h"

#include <c10/util/Exception.h>

#include <limits>
#include <stdexcept>

namespace shardway {
namespace {

constexpr int64_t kMostDims = 64;

// Numbers that are read one after another. Throws std::invalid_argument if there are too few.
class Reader {
 public:
  explicit Reader(std::span<const int64_t> numbers) : left_(numbers) {}

  int64_t next() {
    if (left_.empty()) throw std::invalid_argument("it ends too early");
    const int64_t number = left_.front();
    left_ = left_.subspan(1);
    return number;
  }

  int64_t next_between(int64_t least, int64_t most) {
    const int64_t number = next();
    if (number < least || number > most) throw std::invalid_argument("a number is out of range");
    return number;
  }

  std::vector<int64_t> next_shape() {
    std::vector<int64_t> shape(static_cast<size_t>(next_between(0, kMostDims)));
    for (int64_t& length : shape) length = next_between(0, std::numeric_limits<int64_t>::max());
    return shape;
  }

  Dims next_dims(size_t count) {
    Dims dims(count);
    for (int64_t& number : dims) number = next();
    return dims;
  }

  Moves next_moves(size_t dims) {
    Moves moves;
    for (int64_t count = next_between(0, kMostRouteNumbers); count > 0; --count) {
      Move move{.peer = next()};
      move.mine = {.offset = next_dims(dims), .extent = next_dims(dims)};
      move.theirs = {.offset = next_dims(dims), .extent = move.mine.extent};
      moves.push_back(std::move(move));
    }
    return moves;
  }

  bool is_done() const { return left_.empty(); }

 private:
  std::span<const int64_t> left_;
};

template <class Numbers>
void append(std::vector<int64_t>& to, const Numbers& numbers) {
  to.insert(to.end(), numbers.begin(), numbers.end());
}

void append_shape(std::vector<int64_t>& to, const std::vector<int64_t>& shape) {
  to.push_back(static_cast<int64_t>(shape.size()));
  append(to, shape);
}

void append_moves(std::vector<int64_t>& to, const Moves& moves) {
  to.push_back(static_cast<int64_t>(moves.size()));
  for (const Move& move : moves) {
    to.push_back(move.peer);
    append(to, move.mine.offset);
    append(to, move.mine.extent);
    append(to, move.theirs.offset);
  }
}

ToldRoute read_route(std::span<const int64_t> numbers, int64_t rank, int64_t ranks) {
  Reader reader(numbers);
  ToldRoute told;
  told.has_contiguous_input = reader.next() != 0;
  told.has_contiguous_output = reader.next() != 0;
  Route& route = told.route;
  route.rank = rank;
  route.size = ranks;
  route.op = static_cast<Op>(reader.next_between(0, static_cast<int64_t>(Op::product)));
  route.divisor = reader.next();
  route.input_shape = reader.next_shape();
  route.output_shape = reader.next_shape();
  route.pulls = reader.next_moves(route.output_shape.size());
  route.pushes = reader.next_moves(route.input_shape.size());
  if (!reader.is_done()) throw std::invalid_argument("it goes on behind its end");
  validate(route);
  return told;
}

}  // namespace

std::vector<int64_t> numbers_of(const ToldRoute& told) {
  const Route& route = told.route;
  std::vector<int64_t> numbers = {told.has_contiguous_input ? 1 : 0, told.has_contiguous_output ? 1 : 0,
                                  static_cast<int64_t>(route.op), route.divisor};
  append_shape(numbers, route.input_shape);
  append_shape(numbers, route.output_shape);
  append_moves(numbers, route.pulls);
  append_moves(numbers, route.pushes);
  return numbers;
}

ToldRoute route_of_numbers(std::span<const int64_t> numbers, int64_t rank, int64_t ranks) {
  try {
    return read_route(numbers, rank, ranks);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "rank ", rank,
                     " described a part of a call that cannot be: ", error.what());
  }
}

}  // namespace shardway
