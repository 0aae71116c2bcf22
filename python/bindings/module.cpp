#include <c10/util/Exception.h>
#include <unistd.h>

#include "bindings.h"
#include "shardway/version.h"
#include "shm/board/interrupt.h"

namespace shardway::python {
namespace {

// Python runs its handlers only on the main thread.
bool is_main_thread() { return gettid() == getpid(); }

// Handles Ctrl-C, and any other signal that Python has a handler for, in a call that waits without the
// interpreter's lock.
void check_signals() {
  if (!is_main_thread() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// A child of fork is told by an error that the group is its parent's. What makes the first one Python's takes
// locks that a thread of the parent may have held. So the first is raised here, and dropped.
void raise_first_error() {
  const pybind11::cpp_function raise([] { TORCH_CHECK_WITH(DistBackendError, false, ""); });
  try {
    raise();
  } catch (const pybind11::error_already_set&) {
  }
}

}  // namespace
}  // namespace shardway::python

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = shardway::version();
  shardway::python::bind_collectives(module);
  shardway::python::bind_rooted(module);
  shardway::python::bind_lists(module);
  shardway::python::bind_memory(module);
  shardway::python::bind_tuning(module);
  shardway::python::bind_last_calls(module);
  shardway::python::bind_layout(module);
  shardway::python::bind_topology(module);
  shardway::python::bind_plan(module);
  shardway::python::bind_collective_utils(module);
  shardway::python::bind_mesh_collectives(module);
  shardway::python::bind_mesh_tensor(module);
  shardway::python::bind_redistribute_list(module);
  shardway::python::bind_prepare(module);
  shardway::python::bind_backend(module);
  shardway::python::bind_job_link(module);
  shardway::shm::set_interrupt_check(&shardway::python::check_signals);
  shardway::python::raise_first_error();
}
