// What src/link does for jobs in Python: see python/shardway/_C.pyi.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "link/hub/hub.h"
#include "link/moves/held_versions.h"
#include "link/moves/model_moves.h"
#include "link/moves/vote.h"
#include "torch_dtype.h"
#include "values.h"

namespace shardway::python {
namespace {

using link::HeldVersions;
using link::LoadsByName;
using link::ModelMoves;
using link::Roster;
using link::TensorsByName;
using WithoutGil = py::call_guard<py::gil_scoped_release>;

// This rank's tensors by name, for many calls.
struct LinkTensors {
  link::SharedTensors all;
};

// What a function raised that is no Exception, such as KeyboardInterrupt. It ends the version: a Loader keeps
// only std::exceptions.
struct LoadInterrupted {
  py::error_already_set error;
};

LinkTensors tensors_in(const py::dict& given) {
  TensorsByName tensors;
  for (const auto& [name, tensor] : given)
    tensors[name.cast<std::string>()] = tensor.is_none() ? at::Tensor() : tensor.cast<at::Tensor>();
  return {std::make_shared<const TensorsByName>(std::move(tensors))};
}

std::vector<int64_t> gpus_in(const LinkTensors& tensors) {
  std::vector<int64_t> numbers;
  for (const at::Device& gpu : link::gpus_of(*tensors.all)) numbers.push_back(gpu.index());
  return numbers;
}

// A function of Python that threads without its lock may copy and forget.
std::function<void(const std::string&, const at::Tensor&)> caller_of(const py::object& function) {
  const std::shared_ptr<py::object> kept(new py::object(function), [](py::object* held) {
    const py::gil_scoped_acquire acquire;
    delete held;
  });
  return [kept](const std::string& name, const at::Tensor& piece) {
    const py::gil_scoped_acquire acquire;
    try {
      (*kept)(name, piece);
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_Exception)) throw;
      throw LoadInterrupted{error};
    }
  };
}

std::unique_ptr<link::Loader> make_loader(const py::dict& given) {
  LoadsByName loads;
  for (const auto& [name, load] : given) {
    loads.emplace(name.cast<std::string>(), Load{.layout = read_layout("layout", load.attr("layout")),
                                                 .dtype = read_dtype(load.attr("dtype")),
                                                 .function = caller_of(load.attr("function"))});
  }
  return std::make_unique<link::Loader>(std::move(loads));
}

void raise_failure_of(const link::Loader& loader) {
  if (loader.failure()) std::rethrow_exception(loader.failure());
}

int64_t rank_in(const Roster& roster, const std::string& role, int64_t rank, int64_t size) {
  return roster.rank_of({.role = role, .rank = rank, .size = size, .process = "", .job = ""});
}

ModelMoves make_moves(const Roster& roster, const py::object& process_group, int64_t rank,
                      const std::string& role) {
  return {roster, read_any_group(process_group, "link").group, rank, role};
}

void bring_portions(ModelMoves& moves, const LinkTensors& parts, link::Loader& loader, int64_t sets) {
  try {
    const py::gil_scoped_release release;
    moves.bring_portions(parts.all, loader, sets);
  } catch (const LoadInterrupted& interrupted) {
    throw interrupted.error;
  }
}

std::unique_ptr<link::Vote> make_vote(const py::object& process_group) {
  const Group group = read_any_group(process_group, "link").group;
  const py::gil_scoped_release release;
  return std::make_unique<link::Vote>(group);
}

// Keeps Python's lock: a thread of Python that an ending interpreter finds waiting for it here would be
// unwound through C++, which ends the process. So the caller waits in Python until there is a version.
py::object next_of(HeldVersions& held) {
  const link::SharedTensors next = held.next();
  return next == nullptr ? py::none() : py::cast(LinkTensors{next});
}

std::exception_ptr as_thrown(const py::object& error) {
  if (error.is_none()) return nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  return std::make_exception_ptr(py::error_already_set());
}

void bind_moves(py::module_& module) {
  py::class_<LinkTensors>(module, "LinkTensors")
      .def(py::init(&tensors_in), py::arg("tensors"))
      .def("__getitem__", [](const LinkTensors& self, const std::string& name) { return self.all->at(name); })
      .def_property_readonly("gpus", &gpus_in);
  py::class_<Roster>(module, "LinkRoster")
      .def(py::init(&Roster::parse), py::arg("text"))
      .def("rank_of", &rank_in, py::arg("role"), py::arg("rank"), py::arg("size"));
  py::class_<link::Loader>(module, "LinkLoader")
      .def(py::init(&make_loader), py::arg("loads"))
      .def("raise_failure", &raise_failure_of)
      .def_property_readonly("failed_name", &link::Loader::failed_name);
  py::class_<ModelMoves>(module, "LinkMoves")
      .def(py::init(&make_moves), py::arg("roster"), py::arg("group"), py::arg("rank"), py::arg("role"))
      .def(
          "prepare",
          [](ModelMoves& self, const LinkTensors& parts, const LinkTensors& destinations, bool shares_gpu) {
            self.prepare(parts.all, *destinations.all, shares_gpu);
          },
          py::arg("parts"), py::arg("destinations"), py::arg("shares_gpu"), WithoutGil())
      .def(
          "run",
          [](ModelMoves& self, const LinkTensors& parts, int64_t sets) {
            self.run(parts.all, sets);
            self.round();
          },
          py::arg("parts"), py::arg("sets"), WithoutGil())
      .def("round", &ModelMoves::round, WithoutGil())
      .def("bring_portions", &bring_portions, py::arg("parts"), py::arg("loader"), py::arg("sets"))
      .def("explain", &ModelMoves::explain, py::arg("held_bytes"))
      .def_property_readonly("any_on_gpus", &ModelMoves::any_on_gpus)
      .def_property_readonly("has_portions", &ModelMoves::has_portions)
      .def_property_readonly("tensors", &ModelMoves::tensors)
      .def_property_readonly("staging_bytes", &ModelMoves::staging_bytes)
      .def_property_readonly("sent", [](const ModelMoves& self) { return rows_of(self.bytes()); })
      .def_property_readonly("least", [](const ModelMoves& self) { return tuple_of(self.bytes().least); });
}

}  // namespace

void bind_job_link(py::module_& module) {
  using link::LinkHub;
  py::class_<LinkHub>(module, "LinkHub")
      .def(py::init([](int listener, const py::bytes& secret, const std::string& holder) {
             return std::make_unique<LinkHub>(shm::File(listener), std::string(secret), holder);
           }),
           py::arg("listener"), py::arg("secret"), py::arg("holder"))
      .def("close", &LinkHub::close, WithoutGil());
  py::class_<link::Vote>(module, "LinkVote")
      .def(py::init(&make_vote), py::arg("group"))
      .def("all_say", &link::Vote::all_say, py::arg("word"), WithoutGil());
  bind_moves(module);
  py::class_<HeldVersions>(module, "LinkHeldVersions")
      .def(py::init<>())
      .def(
          "add",
          [](HeldVersions& self, const LinkTensors& parts, HeldVersions::Duration timeout) {
            self.add(*parts.all, timeout);
          },
          py::arg("parts"), py::arg("timeout"), WithoutGil())
      .def("drain", &HeldVersions::drain, py::arg("timeout"), WithoutGil())
      .def("next", &next_of)
      .def(
          "done",
          [](HeldVersions& self, const LinkTensors& sent, const py::object& failure) {
            self.done(sent.all, as_thrown(failure));
          },
          py::arg("sent"), py::arg("failure"))
      .def("close", &HeldVersions::close)
      .def_property_readonly("bytes", &HeldVersions::bytes)
      .def_readonly_static("most", &HeldVersions::kMost);
}

}  // namespace shardway::python
