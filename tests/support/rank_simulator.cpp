#include "rank_simulator.h"

#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace shardway::testing {
namespace {

using Message = std::vector<int64_t>;
using Mailboxes = std::map<std::pair<int64_t, int64_t>, std::deque<Message>>;  // (from, to) → in order

size_t position_of(const Shape& shape, const Index& index) {
  if (index.size() != shape.size()) throw std::out_of_range("index of another number of dims");
  int64_t position = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (index[d] < 0 || index[d] >= shape[d])
      throw std::out_of_range("index outside the array in dim " + std::to_string(d));
    position = position * shape[d] + index[d];
  }
  return static_cast<size_t>(position);
}

int64_t combined(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::sum:
      return a + b;
    case Op::min:
      return a < b ? a : b;
    case Op::max:
      return a > b ? a : b;
    case Op::product:
      return a * b;
    case Op::avg:
      break;
  }
  throw std::logic_error("avg is written as sum with a divisor");
}

Mailboxes post(const std::vector<Route>& routes, const std::vector<Dense>& inputs) {
  Mailboxes mailboxes;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    for (const Move& push : routes[rank].pushes) {
      Message message;
      for (const Index& index : indices_of(push.mine)) message.push_back(inputs[rank].at(index));
      mailboxes[{static_cast<int64_t>(rank), push.peer}].push_back(std::move(message));
    }
  }
  return mailboxes;
}

void land(const Message& message, const Box& box, Op op, Outcome& outcome) {
  const std::vector<Index> indices = indices_of(box);
  if (indices.size() != message.size()) throw std::logic_error("a message of another length than its pull");
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t& value = outcome.output.at(indices[i]);
    value = outcome.landed.at(indices[i])++ == 0 ? message[i] : combined(op, value, message[i]);
  }
}

void divide(Outcome& outcome, int64_t divisor) {
  for (size_t i = 0; i < outcome.output.values.size(); ++i) {
    if (outcome.landed.values[i] == 0) continue;
    if (outcome.output.values[i] % divisor != 0) throw std::logic_error("the division leaves a rest");
    outcome.output.values[i] /= divisor;
  }
}

}  // namespace

Dense Dense::filled(const Shape& shape, int64_t value) {
  return {.shape = shape,
          .values = std::vector<int64_t>(static_cast<size_t>(Box::whole(shape).volume()), value)};
}

int64_t& Dense::at(const Index& index) { return values[position_of(shape, index)]; }
int64_t Dense::at(const Index& index) const { return values[position_of(shape, index)]; }

std::vector<Index> indices_of(const Box& box) {
  std::vector<Index> indices = {{}};
  for (size_t d = 0; d < box.offset.size(); ++d) {
    std::vector<Index> longer;
    for (const Index& index : indices) {
      for (int64_t i = 0; i < box.extent[d]; ++i) {
        longer.push_back(index);
        longer.back().push_back(box.offset[d] + i);
      }
    }
    indices = std::move(longer);
  }
  return indices;
}

bool is_inside(const Index& index, const Box& box) {
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d] < box.offset[d] || index[d] >= box.offset[d] + box.extent[d]) return false;
  }
  return true;
}

std::vector<Outcome> simulate(const std::vector<Route>& routes, const std::vector<Dense>& inputs) {
  Mailboxes mailboxes = post(routes, inputs);
  std::vector<Outcome> outcomes;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    const Route& route = routes[rank];
    Outcome outcome{.output = Dense::filled(route.output_shape, kUntouched),
                    .landed = Dense::filled(route.output_shape, 0)};
    for (const Move& pull : route.pulls) {
      auto& waiting = mailboxes[{pull.peer, static_cast<int64_t>(rank)}];
      if (waiting.empty()) throw std::logic_error("a pull without its push");
      land(waiting.front(), pull.mine, route.op, outcome);
      waiting.pop_front();
    }
    divide(outcome, route.divisor);
    outcomes.push_back(std::move(outcome));
  }
  for (const auto& [pair, waiting] : mailboxes) {
    if (!waiting.empty()) throw std::logic_error("a push without its pull");
  }
  return outcomes;
}

int64_t inner_product(const std::vector<Dense>& a, const std::vector<Dense>& b) {
  int64_t sum = 0;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    if (a[rank].shape != b[rank].shape) throw std::logic_error("inner product of different shapes");
    for (size_t i = 0; i < a[rank].values.size(); ++i) sum += a[rank].values[i] * b[rank].values[i];
  }
  return sum;
}

}  // namespace shardway::testing
