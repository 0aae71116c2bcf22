// A collective called from Python: its arguments read, the call made, its result handed out.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <concepts>
#include <string>
#include <utility>

#include "arguments.h"
#include "ops/arguments.h"
#include "ops/header.h"

namespace shardway::python {

inline py::object as_python(const at::Tensor& tensor) { return py::cast(tensor); }
inline py::object as_python(const Ragged& ragged) {
  return py::make_tuple(ragged.tensor, as_tuple(ragged.sizes));
}

template <class Result>
py::object wait_for(const Async<Result>& call) {
  Result result = [&] {
    const py::gil_scoped_release release;
    return call.wait();
  }();
  return as_python(result);
}

// Reads the arguments and starts the call. An argument that cannot be read is reported to all ranks when
// the call would have exchanged a header; `sizes_known` says, without touching Python, that it would not.
template <class Known, class Read, class Start>
  requires std::predicate<Known, const Group&>
py::object run(Collective collective, const Group& group, Known&& sizes_known, bool async_op, Read&& read,
               Start&& start) {
  const std::string problem = problem_in([&] { read(group); });
  if (!problem.empty()) {
    const py::gil_scoped_release release;
    fail_together(collective, problem, group, sizes_known(group));
  }
  auto call = [&] {
    const py::gil_scoped_release release;
    return start();
  }();
  return async_op ? py::cast(std::move(call)) : wait_for(call);
}

template <class Read, class Start>
py::object run(Collective collective, const Group& group, bool sizes_known, bool async_op, Read&& read,
               Start&& start) {
  const auto known = [sizes_known](const Group&) { return sizes_known; };
  return run(collective, group, known, async_op, std::forward<Read>(read), std::forward<Start>(start));
}

}  // namespace shardway::python
