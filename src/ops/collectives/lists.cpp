// Lists of tensors in one exchange: what each rank has for another goes as one run of bytes, a listing first.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "ops/call/arguments.h"
#include "ops/call/list_exchange.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "transport/common/packing.h"
#include "transport/common/reduce.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool requires_grad(const at::Tensor& x) { return x.requires_grad() && at::GradMode::is_enabled(); }

// What `read` gives for each tensor, or what is wrong with the first that has something wrong.
template <class Read>
void read_tensors(Listing& listing, const ListedTensors& xs, const std::optional<std::vector<Sizes>>& sizes,
                  Read&& read) {
  listing.problem = problem_in([&] {
    if (xs.empty()) throw BadArgument("x is an empty list");
    if (sizes && sizes->size() != xs.size())
      throw BadArgument(c10::str("sizes has ", sizes->size(), " entries for ", xs.size(), " tensors"));
    for (size_t i = 0; i < xs.size(); ++i) {
      const std::string problem = problem_in([&] {
        listing.tensors.push_back(read(xs[i], sizes ? &(*sizes)[i] : nullptr));
        if (xs[i].device() != xs[0].device())
          throw BadArgument(c10::str("x[0] is on ", xs[0].device(), ", but this on ", xs[i].device()));
      });
      if (!problem.empty()) throw BadArgument(c10::str("x[", i, "]: ", problem));
    }
  });
}

Listing read_call(const ListedTensors& xs, const AllGatherListOptions& options) {
  Listing listing{.collective = Collective::all_gather_v, .grad = options.grad};
  read_tensors(listing, xs, options.sizes, [&](const at::Tensor& x, const Sizes* sizes) {
    const int64_t dim = checked_dim(x, options.dim, options.group);
    if (sizes != nullptr) check_gathered(*sizes, x, dim, options.group);
    if (options.grad != Grad::local && requires_grad(x)) check_reduction(x, Op::sum);
    return ListedTensor{.dtype = x.scalar_type(),
                        .requires_grad = requires_grad(x),
                        .dim = dim,
                        .shape = x.sizes().vec(),
                        .sizes = sizes != nullptr ? *sizes : Sizes{}};
  });
  return listing;
}

Listing read_call(const ListedTensors& xs, const ReduceScatterListOptions& options) {
  Listing listing{.collective = Collective::reduce_scatter_v, .op = options.op};
  read_tensors(listing, xs, options.sizes, [&](const at::Tensor& x, const Sizes* sizes) {
    const int64_t dim = checked_dim(x, options.dim, options.group);
    if (sizes != nullptr) check_split("sizes", *sizes, x, dim, options.group);
    check_reduction(x, options.op);
    return ListedTensor{.dtype = x.scalar_type(),
                        .requires_grad = requires_grad(x),
                        .dim = dim,
                        .shape = x.sizes().vec(),
                        .sizes = sizes != nullptr ? *sizes : chunk_sizes(x.size(dim), options.group.size())};
  });
  return listing;
}

Sizes resized(Sizes shape, int64_t dim, int64_t size) {
  shape[static_cast<size_t>(dim)] = size;
  return shape;
}

// A list op as its gradient remembers it.
struct SavedList : torch::CustomClassHolder {
  Listing listing;
  std::vector<Sizes> sizes;
  int64_t dim = 0;  // as given: of tensors of several numbers of dims it may be counted from their ends
  Group group;
  uint64_t number = 0;  // of the call; see Forward

  Forward forward() const { return {.collective = listing.collective, .number = number}; }
};

ListedTensors backward_of(const SavedList& saved, const ListedTensors& grads) {
  if (saved.listing.collective == Collective::reduce_scatter_v) {
    const AllGatherListOptions options{.dim = saved.dim, .sizes = saved.sizes, .group = saved.group};
    const Recording recording("all_gather_v", grads);
    ListedTensors whole =
        start_all_gather_v(grads, options, Progress::by_caller, saved.forward()).wait().tensors;
    if (saved.listing.op != Op::avg) return whole;
    for (at::Tensor& grad : whole) grad = grad / saved.group.size();
    return whole;
  }
  if (saved.listing.grad != Grad::local) {
    const Op op = saved.listing.grad == Grad::mean ? Op::avg : Op::sum;
    const ReduceScatterListOptions options{
        .sizes = saved.sizes, .dim = saved.dim, .op = op, .group = saved.group};
    const Recording recording("reduce_scatter_v", grads);
    return start_reduce_scatter_v(grads, options, Progress::by_caller, saved.forward()).wait();
  }
  ListedTensors own;
  for (size_t i = 0; i < grads.size(); ++i) {
    const auto mine = saved.sizes[i].begin() + saved.group.rank();
    own.push_back(grads[i].narrow(saved.listing.tensors[i].dim,
                                  std::accumulate(saved.sizes[i].begin(), mine, int64_t{0}), *mine));
  }
  return own;
}

// The gradients of a list travel as a list.
struct ListFunction : torch::autograd::Function<ListFunction> {
  // Wrapped so that autograd takes them for results and not for inputs.
  struct Landed {
    ListedTensors outs;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList xs, const Landed& landed,
                               const c10::intrusive_ptr<SavedList>& saved) {
    (void)xs;
    ctx->saved_data["list"] = c10::IValue::make_capsule(saved);
    return landed.outs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedList>(ctx->saved_data["list"].toCapsule());
    variable_list result = backward_of(*saved, grads);
    result.resize(grads.size() + 2);
    return result;
  }
};

// Gives those of `outs` a gradient that need one: of a tensor that requires grad on any rank, all ranks run
// backward.
void add_gradient(const ListedTensors& xs, ListedTensors& outs, const std::vector<Opened>& parcels,
                  const std::vector<Sizes>& sizes, int64_t dim, const Group& group, uint64_t number) {
  const Listing& own = parcels[static_cast<size_t>(group.rank())].listing();
  auto saved = c10::make_intrusive<SavedList>();
  saved->listing = own;
  saved->listing.tensors.clear();
  saved->dim = dim;
  saved->group = group;
  saved->number = number;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < xs.size(); ++i) {
    const bool is_wanted = own.grad == Grad::local
                               ? own.tensors[i].requires_grad
                               : std::any_of(parcels.begin(), parcels.end(), [i](const Opened& parcel) {
                                   return parcel.listing().tensors[i].requires_grad;
                                 });
    if (is_wanted) chosen.push_back(i);
  }
  if (chosen.empty()) return;
  variable_list leaves;
  ListFunction::Landed landed;
  for (const size_t i : chosen) {
    leaves.push_back(xs[i].requires_grad() ? xs[i] : xs[i].detach().requires_grad_());
    landed.outs.push_back(outs[i]);
    saved->listing.tensors.push_back(own.tensors[i]);
    saved->sizes.push_back(sizes[i]);
  }
  const variable_list results = ListFunction::apply(at::TensorList(leaves), landed, saved);
  for (size_t k = 0; k < chosen.size(); ++k) outs[chosen[k]] = results[k];
}

RaggedList concatenated(const ListedTensors& xs, std::vector<Opened> all, const AllGatherListOptions& options,
                        uint64_t number) {
  RaggedList result;
  {
    const at::NoGradGuard guard;
    for (size_t i = 0; i < xs.size(); ++i) {
      ListedTensors parts;
      Sizes sizes;
      const int64_t dim = all[0].listing().tensors[i].dim;
      for (Opened& parcel : all) {
        const ListedTensor& told = parcel.listing().tensors[i];
        parts.push_back(parcel.next(told.dtype, told.shape));
        sizes.push_back(told.shape[static_cast<size_t>(dim)]);
      }
      const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
      result.tensors.push_back(warm_empty(resized(xs[i].sizes().vec(), dim, total), parts[0].options()));
      join_into(result.tensors.back(), parts, dim);
      result.sizes.push_back(std::move(sizes));
    }
  }
  add_gradient(xs, result.tensors, all, result.sizes, options.dim, options.group, number);
  return result;
}

ListedTensors combined(const ListedTensors& xs, std::vector<Opened> all,
                       const ReduceScatterListOptions& options, uint64_t number) {
  const Group& group = options.group;
  const Op op = options.op == Op::avg ? Op::sum : options.op;
  const int64_t divisor = options.op == Op::avg ? group.size() : 1;
  ListedTensors outs;
  std::vector<Sizes> sizes;
  {
    const at::NoGradGuard guard;
    for (size_t i = 0; i < xs.size(); ++i) {
      const ListedTensor& told = all[0].listing().tensors[i];
      const Sizes shape = resized(told.shape, told.dim, told.sizes[static_cast<size_t>(group.rank())]);
      ListedTensors addends;
      for (Opened& parcel : all) addends.push_back(parcel.next(told.dtype, shape));
      outs.push_back(warm_empty(shape, addends[0].options()));
      reduce_into(outs.back(), addends, op, divisor);
      sizes.push_back(told.sizes);
    }
  }
  add_gradient(xs, outs, all, sizes, options.dim, group, number);
  return outs;
}

}  // namespace

Async<RaggedList> start_all_gather_v(const ListedTensors& xs, const AllGatherListOptions& options,
                                     Progress progress, const std::optional<Forward>& backward_of) {
  const Listing listing = read_call(xs, options);
  if (!options.group.distributed()) {
    if (!listing.problem.empty()) raise("all_gather_v", listing.problem, options.group.rank());
    RaggedList same{.tensors = xs, .sizes = {}};
    for (size_t i = 0; i < xs.size(); ++i) same.sizes.push_back({xs[i].size(listing.tensors[i].dim)});
    return Async<RaggedList>([same] { return same; });
  }
  const Told told = told_by(xs, options.sizes.has_value(), options.group);
  const auto exchange = start_exchange(listing, xs, options.group, told, progress, backward_of);
  return Async<RaggedList>([=] {
    return concatenated(xs, opened(exchange.parcels.wait(), listing, told), options, exchange.number);
  });
}

Async<ListedTensors> start_reduce_scatter_v(const ListedTensors& xs, const ReduceScatterListOptions& options,
                                            Progress progress, const std::optional<Forward>& backward_of) {
  const Listing listing = read_call(xs, options);
  if (!options.group.distributed()) {
    if (!listing.problem.empty()) raise("reduce_scatter_v", listing.problem, options.group.rank());
    return Async<ListedTensors>([xs] { return xs; });
  }
  const Told told = told_by(xs, options.sizes.has_value(), options.group);
  const auto exchange = start_exchange(listing, xs, options.group, told, progress, backward_of);
  return Async<ListedTensors>(
      [=] { return combined(xs, opened(exchange.parcels.wait(), listing, told), options, exchange.number); });
}

void fail_list_together(Collective collective, const std::string& problem, const Group& group,
                        bool sizes_known, const std::vector<at::Tensor>& xs) {
  const Listing listing{.collective = collective, .problem = problem};
  const bool compares = group.distributed() && told_by(xs, sizes_known, group) == Told::by_listing;
  if (compares)
    opened(start_exchange(listing, {}, group, Told::by_listing, Progress::by_caller, {}).parcels.wait());
  raise(name_of(collective), problem, group.rank());
}

RaggedList all_gather_v(const ListedTensors& xs, const AllGatherListOptions& options) {
  const Recording recording("all_gather_v", xs);
  options.group.check_meant("all_gather_v");
  return start_all_gather_v(xs, options, Progress::by_caller).wait();
}

Async<RaggedList> all_gather_v_async(const ListedTensors& xs, const AllGatherListOptions& options) {
  const Recording recording("all_gather_v", xs);
  options.group.check_meant("all_gather_v");
  return start_all_gather_v(xs, options, Progress::by_itself);
}

ListedTensors reduce_scatter_v(const ListedTensors& xs, const ReduceScatterListOptions& options) {
  const Recording recording("reduce_scatter_v", xs);
  options.group.check_meant("reduce_scatter_v");
  return start_reduce_scatter_v(xs, options, Progress::by_caller).wait();
}

Async<ListedTensors> reduce_scatter_v_async(const ListedTensors& xs,
                                            const ReduceScatterListOptions& options) {
  const Recording recording("reduce_scatter_v", xs);
  options.group.check_meant("reduce_scatter_v");
  return start_reduce_scatter_v(xs, options, Progress::by_itself);
}

}  // namespace shardway
