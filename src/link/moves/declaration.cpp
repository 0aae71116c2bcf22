#include "link/moves/declaration.h"

#include <ATen/core/Formatting.h>
#include <c10/util/StringUtil.h>

#include "link/model/layouts.h"
#include "link/model/portions.h"
#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"

namespace shardway::link {
namespace {

template <class... Words>
[[noreturn]] void refuse_entry(const Words&... words) {
  throw BadArgument(c10::str(words...));
}

void check_moved(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.is_quantized())
    refuse_entry("it is on ", tensor.device(), ", ", tensor.layout(),
                 ": a link moves dense tensors of the CPU");
}

void check_part(const at::Tensor& local, const Layout& layout, int64_t position) {
  check_moved(local);
  const Box box = layout.box_at(position);
  if (local.sizes() != at::IntArrayRef(box.extent))
    refuse_entry("its part has shape ", local.sizes(), ", but the layout says ", at::IntArrayRef(box.extent));
  if (dtype_of(local.scalar_type()) != layout.dtype())
    refuse_entry("its part is ", dtype_name(local.scalar_type()), ", but the layout says ",
                 torch_name(layout.dtype()));
}

void check_mesh(const Layout& layout, int64_t size) {
  for (const int64_t number : layout.mesh().ranks()) {
    if (number >= size) refuse_entry("its mesh has rank ", number, ", but the role has ", size, " ranks");
  }
}

Json described_load(const Load& load, int64_t size) {
  if (!load.function) refuse_entry("its Load has no function");
  if (load.max_bytes < 1)
    refuse_entry("max_bytes=", load.max_bytes, " of its Load is not a positive number of bytes");
  check_mesh(load.layout, size);
  Json entry = entry_of(load.layout);
  entry["dtype"] = torch_name(load.dtype);
  entry[kMaxBytes] = load.max_bytes;
  return entry;
}

Json described_part(const NamedTensor& tensor, const Layout& layout, int64_t rank, int64_t size) {
  if (tensor.owner && *tensor.owner != rank)
    refuse_entry("it is of rank ", *tensor.owner, ", but this process has connected as rank ", rank);
  check_mesh(layout, size);
  const auto position = layout.mesh().position_of(rank);
  if (position && !tensor.local.defined()) refuse_entry("it has no local part");
  if (!position && tensor.local.defined()) refuse_entry("this rank is outside its mesh, but has a part");
  if (position) check_part(tensor.local, layout, *position);
  return entry_of(layout);
}

Json described(const NamedTensor& tensor, int64_t rank, int64_t size) {
  if (tensor.load) return described_load(*tensor.load, size);
  if (tensor.layout) return described_part(tensor, *tensor.layout, rank, size);
  if (!tensor.local.defined()) refuse_entry("it is undefined");
  check_moved(tensor.local);
  return {{"shape", tensor.local.sizes().vec()}, {"dtype", torch_name(dtype_of(tensor.local.scalar_type()))}};
}

}  // namespace

Declaration Declaration::of(const std::vector<NamedTensor>& tensors, int64_t rank, int64_t size) {
  Declaration made;
  TensorsByName parts;
  for (const NamedTensor& tensor : tensors) {
    const std::string problem = problem_in([&] {
      if (parts.contains(tensor.name)) refuse_entry("it is named twice");
      made.entries.push_back({tensor.name, described(tensor, rank, size)});
      parts[tensor.name] = tensor.local.defined() ? tensor.local.detach() : at::Tensor();
      if (tensor.load) made.loads.emplace(tensor.name, *tensor.load);
    });
    if (problem.empty()) continue;
    made.problems.push_back(tensor.name + ": " + problem);
    made.refused.push_back(tensor.name);
  }
  made.parts = std::make_shared<const TensorsByName>(std::move(parts));
  return made;
}

Json Declaration::said(const std::string& call, bool cast) const {
  Json message = {{"do", call}, {"tensors", entries}, {"problems", problems}, {"cast", cast}, {"version", 0}};
  if (!refused.empty()) message["refused"] = refused;
  return message;
}

}  // namespace shardway::link
