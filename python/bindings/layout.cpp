// shardway/layout.h for Python: see python/shardway/_C.pyi.
#include "shardway/layout.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>

#include "bindings.h"
#include "torch_dtype.h"
#include "values.h"

namespace shardway::python {
namespace {

// Placements have a Python class per kind.
struct Shard : Placement {};
struct Replicate : Placement {};
struct Partial : Placement {};

py::object as_python(const Placement& placement) {
  if (placement.is_shard()) return py::cast(Shard{placement});
  if (placement.is_partial()) return py::cast(Partial{placement});
  return py::cast(Replicate{placement});
}

py::tuple as_python(const std::vector<Placement>& placements) {
  py::tuple result(placements.size());
  for (size_t i = 0; i < placements.size(); ++i) result[i] = as_python(placements[i]);
  return result;
}

py::tuple as_python(const ShardOrder& order) {
  py::tuple result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[i] = tuple_of(order[i]);
  return result;
}

py::object names_of(const Mesh& mesh) {
  return mesh.names().empty() ? py::none() : py::object(tuple_of(mesh.names()));
}

Mesh make_mesh(const py::object& shape, const py::object& ranks, const py::object& names) {
  std::vector<int64_t> lengths = read_ints("mesh: shape", shape);
  std::vector<std::string> words;
  if (!names.is_none()) words = read_texts("mesh: names", names);
  if (ranks.is_none()) return Mesh(std::move(lengths), std::move(words));
  return {std::move(lengths), read_ints("mesh: ranks", ranks), std::move(words)};
}

// A dim by its number, which may count from the end, or by its name.
int64_t read_dim(const Mesh& mesh, const py::handle& value) {
  if (py::isinstance<py::str>(value)) return mesh.dim_named(value.cast<std::string>());
  const int64_t dim = read_int("mesh: dim", value);
  if (dim < -mesh.ndim() || dim >= mesh.ndim()) {
    throw std::invalid_argument("mesh: dim=" + std::to_string(dim) + " is out of range for a " +
                                std::to_string(mesh.ndim()) + "-d mesh");
  }
  return dim < 0 ? dim + mesh.ndim() : dim;
}

Mesh submesh_of(const Mesh& mesh, const py::object& dims, const py::object& rank) {
  std::vector<int64_t> numbers;
  if (py::isinstance<py::str>(dims) || integer_in(dims)) {
    numbers = {read_dim(mesh, dims)};
  } else {
    for (const py::object& dim : read_list("mesh: dims", dims)) numbers.push_back(read_dim(mesh, dim));
  }
  return mesh.submesh(numbers, read_int("mesh: rank", rank));
}

std::string repr_of(const Mesh& mesh) {
  constexpr size_t kMostShown = 16;
  std::string text = "Mesh(" + text_of(tuple_of(mesh.shape()));
  if (!(mesh == Mesh(mesh.shape()))) {
    const auto& ranks = mesh.ranks();
    text += ", ranks=" + (ranks.size() <= kMostShown ? text_of(tuple_of(ranks))
                                                     : "(" + std::to_string(ranks.front()) + ", ..., " +
                                                           std::to_string(ranks.back()) + ")");
  }
  if (!mesh.names().empty()) text += ", names=" + text_of(tuple_of(mesh.names()));
  return text + ")";
}

std::string repr_of(const Placement& placement) {
  if (placement.is_replicate()) return "Replicate()";
  if (placement.is_partial()) {
    return placement.op == Op::sum ? "Partial()" : std::string("Partial('") + name_of(placement.op) + "')";
  }
  const std::string text = "Shard(" + std::to_string(placement.dim);
  return placement.is_ragged() ? text + ", sizes=" + text_of(tuple_of(placement.sizes)) + ")" : text + ")";
}

Layout make_layout(const py::object& shape, const py::object& dtype, const py::object& mesh,
                   const py::object& placements, const py::object& order) {
  std::vector<int64_t> lengths = read_ints("layout: shape", shape);
  const auto ndim = static_cast<int64_t>(lengths.size());
  return {std::move(lengths), read_dtype(dtype), read_mesh(mesh), read_placements(placements, ndim),
          read_order(order)};
}

Layout layout_with(const Layout& layout, const py::object& placements, const py::object& order,
                   const py::object& mesh) {
  return layout.with(mesh.is_none() ? layout.mesh() : read_mesh(mesh),
                     read_placements(placements, layout.ndim()), read_order(order));
}

py::tuple box_of(const Layout& layout, const py::object& rank) {
  const int64_t number = read_int("layout: rank", rank);
  const std::optional<int64_t> position = layout.mesh().position_of(number);
  if (!position) {
    throw std::invalid_argument("layout: rank " + std::to_string(number) + " is outside the mesh " +
                                to_string(layout.mesh()));
  }
  const Box box = layout.box_at(*position);
  return py::make_tuple(tuple_of<int64_t>(box.offset), tuple_of<int64_t>(box.extent));
}

py::object order_or_none(const Layout& layout) {
  return layout.has_default_order() ? py::none() : py::object(as_python(layout.order()));
}

std::string repr_of(const Layout& layout) {
  std::string text = "Layout(" + text_of(tuple_of(layout.shape())) + ", " +
                     text_of(torch_dtype(layout.dtype())) + ", " + repr_of(layout.mesh()) + ", " +
                     text_of(py::list(as_python(layout.placements())));
  if (!layout.has_default_order()) text += ", order=" + text_of(as_python(layout.order()));
  return text + ")";
}

// Equality, hash and pickling by value, under the package's name.
template <class Class, class... Bases, class Rebuild>
void make_value(py::class_<Class, Bases...>& bound, Rebuild&& rebuild) {
  bound.attr("__module__") = "shardway";
  bound.def("__repr__", [](const Class& self) { return repr_of(self); });
  bound.def("__reduce__", [rebuild](const py::object& self) {
    return py::make_tuple(py::type::of(self), rebuild(self.cast<const Class&>()));
  });
}

void bind_mesh(py::module_& module) {
  py::class_<Mesh> mesh(module, "Mesh", "Ranks arranged in an n-d grid, row-major. Dims may have names.");
  make_value(mesh, [](const Mesh& m) {
    return py::make_tuple(tuple_of(m.shape()), tuple_of(m.ranks()), names_of(m));
  });
  mesh.def(py::init(&make_mesh), py::arg("shape"), py::arg("ranks") = py::none(),
           py::arg("names") = py::none())
      .def_property_readonly("shape", [](const Mesh& m) { return tuple_of(m.shape()); })
      .def_property_readonly("ranks", [](const Mesh& m) { return tuple_of(m.ranks()); })
      .def_property_readonly("names", &names_of)
      .def_property_readonly("ndim", &Mesh::ndim)
      .def(
          "size",
          [](const Mesh& m, const py::object& dim) {
            return dim.is_none() ? m.size() : m.size(read_dim(m, dim));
          },
          py::arg("dim") = py::none())
      .def("submesh", &submesh_of, py::arg("dims"), py::arg("rank"))
      .def(
          "flattened",
          [](const Mesh& m, const py::object& first, const py::object& last) {
            return m.flattened(read_dim(m, first), read_dim(m, last));
          },
          py::arg("first"), py::arg("last"))
      .def(
          "to_device_mesh",
          [](const py::object& self, const py::object& device_type) {
            return dtensor("device_mesh_of")(self, device_type);
          },
          py::arg("device_type") = "cpu")
      .def_static("from_device_mesh", &read_mesh, py::arg("device_mesh"))
      .def(
          "__eq__", [](const Mesh& a, const Mesh& b) { return a == b; }, py::is_operator())
      .def("__hash__",
           [](const Mesh& m) { return py::hash(py::make_tuple(tuple_of(m.shape()), tuple_of(m.ranks()))); })
      .def("__str__", [](const Mesh& m) { return to_string(m); });
}

void bind_placements(py::module_& module) {
  py::class_<Placement>(module, "Placement", "What one mesh dim does to a tensor.")
      .def(
          "is_shard",
          [](const Placement& p, const py::object& dim) {
            return p.is_shard() && (dim.is_none() || p.dim == read_int("placement: dim", dim));
          },
          py::arg("dim") = py::none())
      .def("is_replicate", &Placement::is_replicate)
      .def("is_partial", &Placement::is_partial)
      .def(
          "__eq__", [](const Placement& a, const Placement& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Placement& p) { return py::hash(py::str(to_string(p))); })
      .def("__str__", [](const Placement& p) { return to_string(p); })
      .attr("__module__") = "shardway";

  py::class_<Shard, Placement> shard_class(
      module, "Shard", "One part of a tensor dim per rank, as torch.chunk splits or of given sizes.");
  make_value(shard_class, [](const Shard& s) {
    return py::make_tuple(s.dim, s.is_ragged() ? py::object(tuple_of(s.sizes)) : py::none());
  });
  shard_class
      .def(py::init([](const py::object& dim, const py::object& sizes) {
             std::vector<int64_t> given;
             if (!sizes.is_none()) given = read_ints("shard: sizes", sizes);
             if (!sizes.is_none() && given.empty())
               throw std::invalid_argument("shard: sizes is empty; it needs one per rank, or None");
             return Shard{shard(read_int("shard: dim", dim), std::move(given))};
           }),
           py::arg("dim"), py::arg("sizes") = py::none())
      .def_property_readonly("dim", [](const Shard& s) { return s.dim; })
      .def_property_readonly(
          "sizes", [](const Shard& s) { return s.is_ragged() ? py::object(tuple_of(s.sizes)) : py::none(); });

  py::class_<Replicate, Placement> replicate_class(module, "Replicate", "The whole on every rank.");
  make_value(replicate_class, [](const Replicate&) { return py::tuple(); });
  replicate_class.def(py::init([] { return Replicate{replicate()}; }));

  py::class_<Partial, Placement> partial_class(
      module, "Partial", "An addend on every rank: the tensor is their sum, or what `op` says.");
  make_value(partial_class, [](const Partial& p) { return py::make_tuple(name_of(p.op)); });
  partial_class
      .def(py::init([](const py::object& op) {
             return Partial{partial(op_from_name(read_text("partial: op", op)))};
           }),
           py::arg("op") = "sum")
      .def_property_readonly("op", [](const Partial& p) { return name_of(p.op); });
}

}  // namespace

void bind_layout(py::module_& module) {
  bind_mesh(module);
  bind_placements(module);
  py::class_<Layout> layout(module, "Layout", "How a tensor lies on a mesh: which box each rank holds.");
  make_value(layout, [](const Layout& l) {
    return py::make_tuple(tuple_of(l.shape()), torch_dtype(l.dtype()), l.mesh(), as_python(l.placements()),
                          order_or_none(l));
  });
  layout
      .def(py::init(&make_layout), py::arg("shape"), py::arg("dtype"), py::arg("mesh"), py::arg("placements"),
           py::arg("order") = py::none())
      .def_property_readonly("shape", [](const Layout& l) { return tuple_of(l.shape()); })
      .def_property_readonly("dtype", [](const Layout& l) { return torch_dtype(l.dtype()); })
      .def_property_readonly("mesh", &Layout::mesh)
      .def_property_readonly("placements", [](const Layout& l) { return as_python(l.placements()); })
      .def_property_readonly("order", [](const Layout& l) { return as_python(l.order()); })
      .def_property_readonly("ndim", &Layout::ndim)
      .def("box", &box_of, py::arg("rank"))
      .def("with_", &layout_with, py::arg("placements"), py::arg("order") = py::none(),
           py::arg("mesh") = py::none())
      .def(
          "to_spec",
          [](const py::object& self, const py::object& device_mesh) {
            return dtensor("spec_of")(self, device_mesh);
          },
          py::arg("device_mesh") = py::none())
      .def_static(
          "from_spec", [](const py::object& spec) { return read_layout("from_spec: spec", spec); },
          py::arg("spec"))
      .def(
          "__eq__", [](const Layout& a, const Layout& b) { return a == b; }, py::is_operator())
      .def("__hash__", &Layout::hash)
      .def("__str__", [](const Layout& l) { return to_string(l); });
}

}  // namespace shardway::python
