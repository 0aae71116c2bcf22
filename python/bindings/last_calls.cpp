// The record of this process's calls for Python.
#include <torch/csrc/utils/pybind.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "bindings.h"
#include "record/call_totals.h"
#include "record/diagnosis.h"
#include "record/flight_record.h"
#include "record/recorder.h"
#include "record/trace.h"

namespace shardway::python {
namespace {

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// What both kinds of lists say of a call.
pybind11::dict facts_of(const record::RecordedCall& call) {
  pybind11::dict result;
  result["op"] = call.op;
  result["number"] = call.number;
  result["group"] = call.group;
  result["rank"] = call.rank;
  result["size"] = call.size;
  result["bytes"] = call.bytes;
  result["state"] = record::name_of(call.state);
  return result;
}

pybind11::dict dict_of(const record::RecordedCall& call, int64_t now) {
  const bool has_ended = call.state != record::CallState::running;
  pybind11::dict result = facts_of(call);
  result["begun_s_ago"] = seconds_of(now - call.begun_ns);
  result["seconds"] = seconds_of((has_ended ? call.ended_ns : now) - call.begun_ns);
  return result;
}

pybind11::dict dict_of(const record::TracedCall& traced) {
  const record::RecordedCall& call = traced.call;
  pybind11::dict result = facts_of(call);
  result["begun_ns"] = call.begun_ns;
  result["ended_ns"] = call.ended_ns;
  result["thread"] = traced.thread;
  return result;
}

pybind11::dict dict_of(const record::TracedStep& step) {
  pybind11::dict result;
  result["name"] = step.name;
  result["bytes"] = step.bytes;
  result["modelled_us"] = step.modelled_us;
  result["begun_ns"] = step.begun_ns;
  result["ended_ns"] = step.ended_ns;
  result["thread"] = step.thread;
  return result;
}

pybind11::dict dict_of(const record::CallTotals& totals) {
  pybind11::dict result;
  result["op"] = totals.op;
  result["group"] = totals.group;
  result["rank"] = totals.rank;
  result["size"] = totals.size;
  result["calls"] = totals.calls;
  result["failed"] = totals.failed;
  result["bytes"] = totals.bytes;
  result["seconds"] = totals.seconds;
  result["waiting_s"] =
      totals.knows_waiting ? pybind11::object(pybind11::float_(totals.waiting_s)) : pybind11::none();
  return result;
}

pybind11::dict taken_trace() {
  const record::Trace trace = record::take_trace();
  pybind11::list calls;
  for (const record::TracedCall& call : trace.calls) calls.append(dict_of(call));
  pybind11::list steps;
  for (const record::TracedStep& step : trace.steps) steps.append(dict_of(step));
  pybind11::dict result;
  result["calls"] = calls;
  result["steps"] = steps;
  result["left_out"] = trace.left_out;
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
  module.def("call_totals", [] {
    pybind11::list rows;
    for (const record::CallTotals& totals : record::call_totals()) rows.append(dict_of(totals));
    return rows;
  });
  module.def("start_trace", &record::start_trace);
  module.def("take_trace", &taken_trace);
  module.def("dump_last_calls", [](const std::string& prefix) {
    try {
      return record::write_own_flight_record(prefix);
    } catch (const std::system_error& error) {
      errno = error.code().value();
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, (prefix + "*").c_str());
      throw pybind11::error_already_set();
    }
  });
}

}  // namespace shardway::python
