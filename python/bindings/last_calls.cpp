// The record of this process's calls for Python.
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "record/recorder.h"

namespace shardway::python {
namespace {

const char* name_of(record::CallState state) {
  switch (state) {
    case record::CallState::running:
      return "running";
    case record::CallState::done:
      return "done";
    default:
      return "failed";
  }
}

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

pybind11::dict dict_of(const record::RecordedCall& call, int64_t now) {
  const bool has_ended = call.state != record::CallState::running;
  pybind11::dict result;
  result["op"] = call.op;
  result["number"] = call.number;
  result["group"] = call.group;
  result["rank"] = call.rank;
  result["size"] = call.size;
  result["bytes"] = call.bytes;
  result["state"] = name_of(call.state);
  result["begun_s_ago"] = seconds_of(now - call.begun_ns);
  result["seconds"] = seconds_of((has_ended ? call.ended_ns : now) - call.begun_ns);
  return result;
}

}  // namespace

void bind_last_calls(pybind11::module_& module) {
  module.def("last_calls", [] {
    pybind11::list calls;
    const int64_t now = record::now_ns();
    for (const record::RecordedCall& call : record::last_calls()) calls.append(dict_of(call, now));
    return calls;
  });
}

}  // namespace shardway::python
