// shardway/topology.h for Python: see python/shardway/_C.pyi.
#include "shardway/topology.h"

#include <pybind11/stl.h>

#include <cstdlib>
#include <stdexcept>

#include "bindings.h"
#include "plan/text/calibration_file.h"
#include "shm/memory/machine.h"
#include "values.h"

namespace shardway::python {
namespace {

// A Link, or its two figures.
Link read_link(const std::string& what, const py::handle& value) {
  if (py::isinstance<Link>(value)) return value.cast<Link>();
  const std::vector<py::object> figures = read_list(what, value);
  if (figures.size() != 2) {
    throw std::invalid_argument(what + "=" + text_of(value) +
                                " is neither a Link nor (latency_us, gib_per_s)");
  }
  return {.latency_us = read_float(what + ".latency_us", figures[0]),
          .gib_per_s = read_float(what + ".gib_per_s", figures[1])};
}

Topology make_topology(const py::object& base_us, const py::object& within_host,
                       const py::object& between_hosts, const py::object& dims,
                       const py::object& ranks_per_host, const py::object& host_of_rank,
                       const py::object& two_levels, const py::object& copy_gib_per_s,
                       const py::object& reduce_gib_per_s, const py::object& source) {
  Topology topology;
  const auto given = [](const py::object& value) { return !value.is_none(); };
  if (given(base_us)) topology.base_us = read_float("topology: base_us", base_us);
  if (given(within_host)) topology.within_host = read_link("topology: within_host", within_host);
  if (given(between_hosts)) topology.between_hosts = read_link("topology: between_hosts", between_hosts);
  if (given(dims)) {
    if (!py::isinstance<py::dict>(dims))
      throw std::invalid_argument("topology: dims=" + text_of(dims) + " is not a dict");
    for (const auto& [key, link] : dims.cast<py::dict>()) {
      const std::string name = py::str(key).cast<std::string>();
      topology.dims[name] = read_link("topology: dims." + name, link);
    }
  }
  if (given(ranks_per_host)) {
    topology.ranks_per_host = read_int("topology: ranks_per_host", ranks_per_host);
    if (topology.ranks_per_host < 1) {
      throw std::invalid_argument("topology: ranks_per_host is " + std::to_string(topology.ranks_per_host) +
                                  "; it must be at least 1, or None for one host");
    }
  }
  if (given(host_of_rank)) topology.host_of_rank = read_ints("topology: host_of_rank", host_of_rank);
  if (!py::isinstance<py::bool_>(two_levels))
    throw std::invalid_argument("topology: two_levels=" + text_of(two_levels) + " is neither True nor False");
  topology.two_levels = two_levels.cast<bool>();
  if (given(copy_gib_per_s)) topology.copy_gib_per_s = read_float("topology: copy_gib_per_s", copy_gib_per_s);
  if (given(reduce_gib_per_s))
    topology.reduce_gib_per_s = read_float("topology: reduce_gib_per_s", reduce_gib_per_s);
  topology.source = read_text("topology: source", source);
  validate(topology);
  return topology;
}

Topology assumed(const py::object& ranks_per_host) {
  const py::none none;
  return make_topology(none, none, none, none, ranks_per_host, none, py::bool_(false), none, none,
                       py::str("assumed"));
}

std::string path_text(const py::object& path) {
  return py::str(py::module_::import("os").attr("fspath")(path)).cast<std::string>();
}

// A number in the environment, or 0.
int64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): read, never set here
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

// A UserWarning if the figures of a file were measured on another machine, or with another number of ranks
// than this job has. The first rank of a job says it for all.
void warn_of_doubts(const std::string& path, const TopologyFile& file) {
  if (number_in("RANK") != 0) return;
  const int64_t ranks = most_ranks_on_a_host(file.topology, number_in("WORLD_SIZE"));
  const std::string doubt = doubt_about(
      file.runs, {.processor = shm::model_of_processor(), .cores = shm::usable_cores(), .ranks = ranks});
  if (!doubt.empty() && PyErr_WarnEx(PyExc_UserWarning, (path + ": " + doubt).c_str(), 1) != 0)
    throw py::error_already_set();
}

Topology read_and_compare(const py::object& path) {
  const TopologyFile file = read_topology_file(path_text(path));
  warn_of_doubts(path_text(path), file);
  return file.topology;
}

Topology default_and_compare() {
  const TopologyFile file = default_topology_file();
  const char* path = std::getenv("SHARDWAY_TOPOLOGY");  // NOLINT(concurrency-mt-unsafe): as above
  if (path != nullptr) warn_of_doubts(path, file);
  return file.topology;
}

std::string repr_of(const Link& link) {
  return "Link(latency_us=" + text_of(py::float_(link.latency_us)) +
         ", gib_per_s=" + text_of(py::float_(link.gib_per_s)) + ")";
}

std::string repr_of(const Topology& t) {
  std::string text = "Topology(base_us=" + text_of(py::float_(t.base_us)) +
                     ", within_host=" + repr_of(t.within_host) +
                     ", between_hosts=" + repr_of(t.between_hosts);
  for (const auto& [name, link] : t.dims) {
    text += (name == t.dims.begin()->first ? ", dims={'" : ", '") + name + "': " + repr_of(link);
  }
  if (!t.dims.empty()) text += '}';
  if (t.ranks_per_host > 0) text += ", ranks_per_host=" + std::to_string(t.ranks_per_host);
  if (!t.host_of_rank.empty()) text += ", host_of_rank=" + text_of(tuple_of(t.host_of_rank));
  if (t.two_levels) text += ", two_levels=True";
  if (t.copy_gib_per_s > 0) text += ", copy_gib_per_s=" + text_of(py::float_(t.copy_gib_per_s));
  if (t.reduce_gib_per_s > 0) text += ", reduce_gib_per_s=" + text_of(py::float_(t.reduce_gib_per_s));
  return text + ", source='" + t.source + "')";
}

void bind_link(py::module_& module) {
  py::class_<Link> link(module, "Link", "Latency and bandwidth between two ranks; a GiB is 2^30 bytes.");
  link.attr("__module__") = "shardway";
  link.def(py::init([](const py::object& latency_us, const py::object& gib_per_s) {
             return Link{.latency_us = read_float("link: latency_us", latency_us),
                         .gib_per_s = read_float("link: gib_per_s", gib_per_s)};
           }),
           py::arg("latency_us") = Link{}.latency_us, py::arg("gib_per_s") = Link{}.gib_per_s)
      .def_readonly("latency_us", &Link::latency_us)
      .def_readonly("gib_per_s", &Link::gib_per_s)
      .def(
          "__eq__", [](const Link& a, const Link& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Link& l) { return py::hash(py::make_tuple(l.latency_us, l.gib_per_s)); })
      .def("__repr__", [](const Link& l) { return repr_of(l); })
      .def("__reduce__", [](const py::object& self) {
        const auto& l = self.cast<const Link&>();
        return py::make_tuple(py::type::of(self), py::make_tuple(l.latency_us, l.gib_per_s));
      });
}

// What shardway.calibrate needs of the planner: which calls to time, and what follows from it.
constexpr int64_t kLeastBytes = 1024;

// The median of a call's repetitions, their spread, and by how much odd and even rounds differ.
py::tuple summary_by_turns(const std::vector<double>& us) {
  const MeasuredCall call = summary_of({}, us);
  return py::make_tuple(call.us, call.spread, call.retest_error);
}

py::list trials_up_to(int64_t most_bytes) {
  py::list trials;
  for (const Trial& trial : trials_between(kLeastBytes, most_bytes))
    trials.append(py::make_tuple(name_of(trial.kind), trial.bytes, name_of(trial.parts)));
  return trials;
}

Calibration about_this_machine(const std::string& backend) {
  return {.machine = shm::name_of_machine(),
          .processor = shm::model_of_processor(),
          .cores = shm::usable_cores(),
          .backend = backend};
}

// Its name, its processor, and the cores that this process can use.
py::tuple this_machine() {
  const Calibration about = about_this_machine({});
  return py::make_tuple(about.machine, about.processor, about.cores);
}

// Why a run cannot be added to the file with this text; empty if it can.
std::string objection_of(const std::string& text, const std::string& name, const std::string& backend) {
  return objection_to_joining(topology_file_from_json(text, name), about_this_machine(backend));
}

// The text of the file, with the runs of the text before, the report on the new run, and whether it is void;
// or None if there are too few repetitions.
py::object calibrated(int64_t most_bytes, const std::vector<std::vector<double>>& us, int64_t ranks,
                      const std::string& backend, const std::string& date, bool is_complete,
                      const std::string& before) {
  const std::vector<Trial> trials = trials_between(kLeastBytes, most_bytes);
  if (us.size() != trials.size())
    throw std::invalid_argument("calibrate: " + std::to_string(us.size()) + " trials were timed, not " +
                                std::to_string(trials.size()));
  Calibration about = about_this_machine(backend);
  about.ranks = ranks;
  about.date = date;
  about.is_complete = is_complete;
  const auto found = measured_topology(trials, us, about);
  if (!found) return py::none();
  const TopologyFile file = before.empty() ? TopologyFile{} : topology_file_from_json(before, "topology");
  return py::make_tuple(to_json(joined(file, *found)) + "\n", report_of(*found),
                        found->calibration.is_void());
}

std::vector<int64_t> sizes_of_parts(const std::string& name, int64_t count, int64_t ranks) {
  for (const Portions parts : kPortions) {
    if (name == name_of(parts)) return sizes_of(parts, count, ranks);
  }
  throw std::invalid_argument("calibrate: parts='" + name +
                              "' is not one of even, rising, leaning, alternating");
}

void bind_calibration(py::module_& module) {
  module.def("sizes_of_parts", &sizes_of_parts, py::arg("parts"), py::arg("count"), py::arg("ranks"));
  module.def("this_machine", &this_machine);
  module.attr("REPETITIONS_IN_A_TURN") = kRepetitionsInATurn;
  module.def("summary_of", &summary_by_turns, py::arg("us"));
  module.def("is_known_well", &is_known_well, py::arg("us"), py::arg("rounds"));
  module.def("trials_up_to", &trials_up_to, py::arg("most_bytes"));
  module.def("calibrated", &calibrated, py::arg("most_bytes"), py::arg("us"), py::arg("ranks"),
             py::arg("backend"), py::arg("date"), py::arg("is_complete"), py::arg("before"));
  module.def("objection_to_joining", &objection_of, py::arg("text"), py::arg("name"), py::arg("backend"));
}

}  // namespace

void bind_topology(py::module_& module) {
  bind_link(module);
  bind_calibration(module);
  py::class_<Topology> topology(module, "Topology", "What it costs to move bytes between ranks.");
  topology.attr("__module__") = "shardway";
  topology
      .def(py::init(&make_topology), py::kw_only(), py::arg("base_us") = py::none(),
           py::arg("within_host") = py::none(), py::arg("between_hosts") = py::none(),
           py::arg("dims") = py::none(), py::arg("ranks_per_host") = py::none(),
           py::arg("host_of_rank") = py::none(), py::arg("two_levels") = false,
           py::arg("copy_gib_per_s") = py::none(), py::arg("reduce_gib_per_s") = py::none(),
           py::arg("source") = "given")
      .def_static("assumed", &assumed, py::arg("ranks_per_host") = py::none())
      .def_static("default", &default_and_compare)
      .def_static("read", &read_and_compare, py::arg("path"))
      .def_static(
          "from_json",
          [](const py::object& text) { return topology_from_json(read_text("topology: text", text)); },
          py::arg("text"))
      .def("to_json", [](const Topology& t) { return to_json(t); })
      .def_readonly("base_us", &Topology::base_us)
      .def_readonly("within_host", &Topology::within_host)
      .def_readonly("between_hosts", &Topology::between_hosts)
      .def_property_readonly("dims", [](const Topology& t) { return t.dims; })
      .def_property_readonly("ranks_per_host",
                             [](const Topology& t) {
                               return t.ranks_per_host > 0 ? py::object(py::int_(t.ranks_per_host))
                                                           : py::none();
                             })
      .def_property_readonly("host_of_rank",
                             [](const Topology& t) {
                               return t.host_of_rank.empty() ? py::none()
                                                             : py::object(tuple_of(t.host_of_rank));
                             })
      .def_readonly("two_levels", &Topology::two_levels)
      .def_readonly("copy_gib_per_s", &Topology::copy_gib_per_s)
      .def_readonly("reduce_gib_per_s", &Topology::reduce_gib_per_s)
      .def_readonly("source", &Topology::source)
      .def(
          "__eq__", [](const Topology& a, const Topology& b) { return a == b; }, py::is_operator())
      .def("__hash__",
           [](const Topology& t) {
             return py::hash(py::make_tuple(t.base_us, t.within_host, t.between_hosts, t.ranks_per_host,
                                            tuple_of(t.host_of_rank)));
           })
      .def("__repr__", [](const Topology& t) { return repr_of(t); })
      .def(py::pickle(
          [](const Topology& t) { return py::make_tuple(to_json(t)); },
          [](const py::tuple& state) { return topology_from_json(state[0].cast<std::string>()); }));
}

}  // namespace shardway::python
