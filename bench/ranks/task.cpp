#include "ranks/task.h"

#include <numeric>
#include <sstream>
#include <stdexcept>

namespace shardway::bench {
namespace {

Op op_from(const std::string& name) {
  if (name == "all_gather_v") return Op::all_gather_v;
  if (name == "reduce_scatter_v") return Op::reduce_scatter_v;
  if (name == "all_to_all_v") return Op::all_to_all_v;
  if (name == "all_reduce") return Op::all_reduce;
  if (name == "broadcast") return Op::broadcast;
  if (name == "barrier") return Op::barrier;
  throw std::invalid_argument("no op is named " + name);
}

Output output_from(const std::string& name) {
  if (name == "out") return Output::given;
  if (name == "steady") return Output::steady;
  if (name == "first") return Output::first;
  throw std::invalid_argument("no output policy is named " + name);
}

float sum_of_all(int64_t ranks, int64_t i, int64_t turn) {
  float sum = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) sum += element(rank, i, turn);
  return sum;
}

}  // namespace

int64_t Task::start(int64_t rank) const {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
}

int64_t Task::input_elements(int64_t rank) const {
  return op == Op::reduce_scatter_v || op == Op::all_to_all_v ? total() : sizes[rank];
}

int64_t Task::output_elements(int64_t rank) const {
  if (op == Op::all_gather_v) return total();
  return op == Op::all_to_all_v ? ranks() * sizes[rank] : sizes[rank];
}

Task task_from(const std::string& line) {
  std::istringstream words(line);
  std::string op;
  std::string output;
  Task task;
  if (!(words >> op >> output >> task.variant >> task.repeats)) {
    throw std::invalid_argument("cannot read the task " + line);
  }
  task.op = op_from(op);
  task.output = output_from(output);
  for (int64_t size = 0; words >> size;) task.sizes.push_back(size);
  return task;
}

float expected_element(const Task& task, int64_t rank, int64_t i, int64_t turn) {
  switch (task.op) {
    case Op::all_gather_v: {
      int64_t from = 0;
      while (i >= task.sizes[from]) i -= task.sizes[from++];
      return element(from, i, turn);
    }
    case Op::reduce_scatter_v:
      return sum_of_all(task.ranks(), task.start(rank) + i, turn);
    case Op::all_reduce:
      return sum_of_all(task.ranks(), i, turn);
    case Op::broadcast:
      return element(0, i, turn);
    default: {
      const int64_t mine = task.sizes[rank];
      return element(i / mine, task.start(rank) + i % mine, turn);
    }
  }
}

}  // namespace shardway::bench
