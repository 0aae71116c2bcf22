// A collective called from Python: reads its arguments, makes the call, returns its result.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <concepts>
#include <functional>
#include <string>
#include <utility>

#include "arguments.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"

namespace shardway::python {

inline py::object as_python(const at::Tensor& tensor) { return py::cast(tensor); }
inline py::object as_python(const Ragged& ragged) {
  return py::make_tuple(ragged.tensor, as_tuple(ragged.sizes));
}

inline py::object as_python(const std::vector<at::Tensor>& tensors) { return py::cast(tensors); }
inline py::object as_python(const RaggedList& list) {
  py::list sizes;
  for (const Sizes& of_one : list.sizes) sizes.append(as_tuple(of_one));
  return py::make_tuple(list.tensors, sizes);
}

// A call under way, whatever it returns.
struct Handle {
  std::function<py::object()> wait;    // called with the interpreter's lock
  std::function<bool()> is_completed;  // does not touch Python
};

// `wrap` makes a Python object of the result.
template <class Result, class Wrap>
Handle handle_of(const Async<Result>& call, Wrap wrap) {
  auto wait = [call, wrap = std::move(wrap)]() -> py::object {
    Result result = [&] {
      const py::gil_scoped_release release;
      return call.wait();
    }();
    return wrap(std::move(result));
  };
  return {.wait = std::move(wait), .is_completed = [call] { return call.is_completed(); }};
}

template <class Result>
Handle handle_of(const Async<Result>& call) {
  return handle_of(call, [](const Result& result) { return as_python(result); });
}

// Reads the arguments, and makes the call or starts it. If an argument cannot be read, `fail` tells the other
// ranks and throws.
template <class Read, class Make, class Start, class Fail>
py::object run(const Group& group, const py::object& async_op, Read&& read, Make&& make, Start&& start,
               Fail&& fail) {
  bool is_async = false;
  const std::string problem = problem_reading([&] {
    read(group);
    is_async = read_flag("async_op", async_op);
  });
  if (!problem.empty()) {
    const py::gil_scoped_release release;
    fail(problem);
  }
  const auto without_gil = [](auto& body) {
    const py::gil_scoped_release release;
    return body();
  };
  return is_async ? py::cast(handle_of(without_gil(start))) : as_python(without_gil(make));
}

// The same for a call that exchanges a header unless `sizes_known` returns true; it must not touch Python.
// `x` is the tensor, once it has been read.
template <class Known, class Read, class Make, class Start>
  requires std::predicate<Known, const Group&>
py::object run(Collective collective, const Group& group, Known&& sizes_known, const at::Tensor& x,
               const py::object& async_op, Read&& read, Make&& make, Start&& start) {
  return run(group, async_op, std::forward<Read>(read), std::forward<Make>(make), std::forward<Start>(start),
             [&](const std::string& problem) {
               const bool is_known = named(name_of(collective), [&] { return sizes_known(group); });
               fail_together(collective, problem, group, is_known, x);
             });
}

template <class Read, class Make, class Start>
py::object run(Collective collective, const Group& group, bool sizes_known, const at::Tensor& x,
               const py::object& async_op, Read&& read, Make&& make, Start&& start) {
  const auto known = [sizes_known](const Group&) { return sizes_known; };
  return run(collective, group, known, x, async_op, std::forward<Read>(read), std::forward<Make>(make),
             std::forward<Start>(start));
}

}  // namespace shardway::python
