// The record of this process's calls for Python.
#include <torch/csrc/utils/pybind.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "bindings.h"
#include "record/diagnosis.h"
#include "record/flight_record.h"
#include "record/recorder.h"

namespace shardway::python {
namespace {

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
  result["state"] = record::name_of(call.state);
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
