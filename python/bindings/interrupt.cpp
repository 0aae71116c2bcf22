// Handles Ctrl-C, and any other signal that Python has a handler for, in a call that waits without the
// interpreter's lock.
#include "shm/board/interrupt.h"

#include <unistd.h>

#include "bindings.h"

namespace shardway::python {
namespace {

// Python runs its handlers only on the main thread.
bool is_main_thread() { return gettid() == getpid(); }

void check_signals() {
  if (!is_main_thread() || Py_IsInitialized() == 0) return;
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace

void bind_interrupt() { shm::set_interrupt_check(&check_signals); }

}  // namespace shardway::python
