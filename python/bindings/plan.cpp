// shardway/plan.h for Python: see python/shardway/_C.pyi.
#include "shardway/plan.h"

#include <pybind11/stl.h>

#include <stdexcept>

#include "bindings.h"
#include "bound_tensor.h"
#include "plan/geometry/cost_text.h"
#include "shardway/page.h"
#include "shardway/redistribute.h"
#include "values.h"

namespace shardway::python {
namespace {

PlanOptions read_options(const py::handle& topology, const py::handle& max_bytes, const py::handle& rules) {
  PlanOptions options{.rules = rules_from_name(read_text("plan: rules", rules))};
  if (!topology.is_none()) {
    if (!py::isinstance<Topology>(topology)) {
      throw std::invalid_argument("plan: topology=" + text_of(topology) + " is not a Topology");
    }
    options.topology = topology.cast<Topology>();
  }
  if (!max_bytes.is_none()) options.max_bytes = read_int("plan: max_bytes", max_bytes);
  return options;
}

std::shared_ptr<Plan> plan_of(const py::object& from, const py::object& to, const py::object& topology,
                              const py::object& max_bytes, const py::object& rules,
                              const py::object& relabel) {
  PlanOptions options = read_options(topology, max_bytes, rules);
  options.relabel = read_relabel(relabel);
  if (py::isinstance<BoundTensor>(from)) {
    const MeshTensor tensor = from.cast<const BoundTensor&>().tensor;
    const Layout target = read_target(tensor.layout(), to, py::none(), nullptr, std::nullopt);
    const py::gil_scoped_release release;
    return std::const_pointer_cast<Plan>(plan(tensor, target, options));
  }
  const Layout a = read_layout("plan: a", from);
  const Layout b = read_layout("plan: b", to);
  const py::gil_scoped_release release;
  return std::const_pointer_cast<Plan>(plan(a, b, options));  // Python cannot change it
}

double cost_of(const Layout& from, const Layout& to, const py::object& topology, const py::object& rules) {
  const PlanOptions options = read_options(topology, py::none(), rules);
  const py::gil_scoped_release release;
  return redistribute_cost(from, to, options);
}

// The plan whose steps lead from each layout to the next, whatever it costs.
std::shared_ptr<Plan> plan_along(const py::object& layouts, const py::object& topology) {
  const PlanOptions options = read_options(topology, py::none(), py::str("shardway"));
  std::vector<Layout> path;
  for (const py::object& layout : read_list("plan_along: layouts", layouts)) {
    path.push_back(read_layout("plan_along: layout", layout));
  }
  const py::gil_scoped_release release;
  auto plan = std::make_shared<Plan>(
      Plan{.from = path.front(), .to = path.back(), .steps = steps_along(path, options)});
  for (const Step& step : plan->steps) {
    plan->cost_us += step.cost_us;
    plan->bytes += step.bytes;
    plan->total_bytes += step.total_bytes;
    plan->peak_bytes = std::max(plan->peak_bytes, step.peak_bytes);
  }
  return plan;
}

// Views into the plan, which they keep alive.
template <class Item>
py::tuple views_of(const py::object& owner, const std::vector<Item>& items) {
  py::tuple result(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    result[i] = py::cast(&items[i], py::return_value_policy::reference_internal, owner);
  }
  return result;
}

std::string figures(const std::string& cost, int64_t bytes) {
  return cost + ", " + std::to_string(bytes) + " bytes";
}

// A step or an alternative does not know whether its cost is an estimate, so it is rounded like one.
std::string rounded_cost(double cost_us) { return "about " + two_digits(cost_us) + " us"; }

std::string repr_of(const Step& step) {
  return std::string("Step(") + name_of(step.kind) + ": " + placements_text(step.from) + " -> " +
         placements_text(step.to) + ", " + figures(rounded_cost(step.cost_us), step.bytes) + ")";
}

std::string repr_of(const Plan& plan) {
  return "Plan(" + plan.text() + ": " +
         figures(cost_in_us(plan.cost_us, gives_estimates(plan.topology)), plan.bytes) + ")";
}

// The page in a frame of its own, so that the styles of notebook and page do not affect each other.
std::string notebook_frame_of(const Plan& plan) {
  std::string quoted;
  for (const char letter : to_html(plan)) {
    quoted += letter == '&' ? "&amp;" : letter == '"' ? "&quot;" : std::string(1, letter);
  }
  return "<iframe title=\"shardway plan\" style=\"width: 100%; height: 760px; border: 0\" srcdoc=\"" +
         quoted + "\"></iframe>";
}

int64_t read_columns(const char* what, const py::handle& value) {
  const int64_t columns = read_int(what, value);
  if (columns < 1)
    throw std::invalid_argument(std::string(what) + "=" + std::to_string(columns) + " is less than 1");
  return columns;
}

void bind_relabelling(py::module_& module) {
  py::class_<Relabelling> relabelling(module, "Relabelling", "Which ranks were chosen for a target's mesh.");
  relabelling.attr("__module__") = "shardway";
  relabelling
      .def_property_readonly("given_ranks", [](const Relabelling& r) { return tuple_of(r.given_ranks); })
      .def_property_readonly("ranks", [](const Relabelling& r) { return tuple_of(r.ranks); })
      .def_readonly("given_total_bytes", &Relabelling::given_total_bytes)
      .def_readonly("total_bytes", &Relabelling::total_bytes)
      .def_property_readonly("saved_bytes", &Relabelling::saved_bytes)
      .def("__str__", [](const Relabelling& r) { return to_string(r); });
}

void bind_step(py::module_& module) {
  py::class_<Step> step(module, "Step", "One stage of a plan.");
  step.attr("__module__") = "shardway";
  step.def_property_readonly("kind", [](const Step& s) { return name_of(s.kind); })
      .def_property_readonly("mesh_dims", [](const Step& s) { return tuple_of(s.mesh_dims); })
      .def_readonly("from_", &Step::from)
      .def_readonly("to", &Step::to)
      .def_readonly("cost_us", &Step::cost_us)
      .def_readonly("latency_us", &Step::latency_us)
      .def_readonly("bytes", &Step::bytes)
      .def_readonly("total_bytes", &Step::total_bytes)
      .def_readonly("peak_bytes", &Step::peak_bytes)
      .def_readonly("crossing_bytes", &Step::crossing_bytes)
      .def_readonly("is_extrapolated", &Step::is_extrapolated)
      .def("__repr__", [](const Step& s) { return repr_of(s); });
}

void bind_alternative(py::module_& module) {
  py::class_<Alternative> alternative(module, "Alternative", "A plan that was looked at and lost.");
  alternative.attr("__module__") = "shardway";
  alternative.def_readonly("name", &Alternative::name)
      .def_readonly("text", &Alternative::text)
      .def_readonly("cost_us", &Alternative::cost_us)
      .def_readonly("latency_us", &Alternative::latency_us)
      .def_readonly("steps", &Alternative::steps)
      .def_readonly("bytes", &Alternative::bytes)
      .def_readonly("peak_bytes", &Alternative::peak_bytes)
      .def_readonly("reason", &Alternative::reason)
      .def("__repr__", [](const Alternative& a) {
        return "Alternative(" + a.name + ", " + a.text + ": " + figures(rounded_cost(a.cost_us), a.bytes) +
               "; " + a.reason + ")";
      });
}

}  // namespace

void bind_plan(py::module_& module) {
  bind_step(module);
  bind_alternative(module);
  bind_relabelling(module);
  py::class_<Plan, std::shared_ptr<Plan>> plan_class(module, "Plan", "The steps from one layout to another.");
  plan_class.attr("__module__") = "shardway";
  plan_class.def_readonly("from_", &Plan::from)
      .def_readonly("to", &Plan::to)
      .def_property_readonly(
          "steps", [](const py::object& self) { return views_of(self, self.cast<const Plan&>().steps); })
      .def_readonly("cost_us", &Plan::cost_us)
      .def_readonly("bytes", &Plan::bytes)
      .def_readonly("total_bytes", &Plan::total_bytes)
      .def_readonly("peak_bytes", &Plan::peak_bytes)
      .def_readonly("in_two_levels", &Plan::in_two_levels)
      .def_readonly("crossing_bytes", &Plan::crossing_bytes)
      .def_readonly("topology", &Plan::topology)
      .def_property_readonly(
          "alternatives",
          [](const py::object& self) { return views_of(self, self.cast<const Plan&>().alternatives); })
      .def_readonly("layouts_searched", &Plan::layouts_searched)
      .def_property_readonly("relabelling", [](const Plan& p) { return p.relabelling; })
      .def(
          "explain",
          [](const Plan& p, const py::object& columns) {
            return explain(p, read_columns("explain: columns", columns));
          },
          py::arg("columns") = 100)
      .def("to_json", [](const Plan& p) { return to_json(p); })
      .def(
          "to_html",
          [](const Plan& p, const py::object& topology, const py::object& max_bytes) {
            const PlanOptions options = read_options(topology, max_bytes, py::str("shardway"));
            return to_html(p, {.topology = options.topology, .max_bytes = options.max_bytes});
          },
          py::kw_only(), py::arg("topology") = py::none(), py::arg("max_bytes") = py::none())
      .def("_repr_html_", &notebook_frame_of)
      .def_static(
          "from_json", [](const py::object& text) { return plan_from_json(read_text("plan: text", text)); },
          py::arg("text"))
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return &a == &b || to_json(a) == to_json(b); },
          py::is_operator())
      .def("__hash__", [](const Plan& p) { return p.from.hash() * 31 + p.to.hash(); })
      .def("__repr__", [](const Plan& p) { return repr_of(p); })
      .def("__str__", &Plan::text)
      .def(py::pickle([](const Plan& p) { return py::make_tuple(to_json(p)); },
                      [](const py::tuple& state) { return plan_from_json(state[0].cast<std::string>()); }));
  module.def("plan", &plan_of, py::arg("a"), py::arg("b"), py::arg("topology"), py::arg("max_bytes"),
             py::arg("rules"), py::arg("relabel"));
  module.def("redistribute_cost", &cost_of, py::arg("a"), py::arg("b"), py::arg("topology"),
             py::arg("rules"));
  module.def("plan_along", &plan_along, py::arg("layouts"), py::arg("topology"));
  module.def(
      "draw",
      [](const Layout& layout, const py::object& columns) {
        return draw(layout, read_columns("draw: columns", columns));
      },
      py::arg("layout"), py::arg("columns"));
  module.def("clear_plans", &clear_plans);
}

}  // namespace shardway::python
