// How the collectives start, for both public forms: the plain one and the async one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "shardway/collectives.h"
#include "transport/common/transport.h"

namespace shardway {

Async<Ragged> start_all_gather_v(const at::Tensor& x, const AllGatherOptions& options, Progress progress);
Async<at::Tensor> start_reduce_scatter_v(const at::Tensor& x, const ReduceScatterOptions& options,
                                         Progress progress);
Async<Ragged> start_all_to_all_v(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options,
                                 Progress progress);
Async<at::Tensor> start_all_reduce(const at::Tensor& x, const AllReduceOptions& options, Progress progress);
Async<at::Tensor> start_broadcast(const at::Tensor& x, const BroadcastOptions& options, Progress progress);
Async<Ragged> start_gather_v(const at::Tensor& x, const GatherOptions& options, Progress progress);
Async<at::Tensor> start_scatter_v(const std::optional<at::Tensor>& x, const ScatterOptions& options,
                                  Progress progress);

// For a list whose arguments, except perhaps `xs`, could not even be read. Tells the other ranks if they
// listen, and throws the problem as c10::ValueError on all that do.
[[noreturn]] [[gnu::visibility("default")]] void fail_list_together(Collective collective,
                                                                    const std::string& problem,
                                                                    const Group& group, bool sizes_known,
                                                                    const std::vector<at::Tensor>& xs);

// Leaves a whole call to the transport's thread, so that the caller waits for nobody.
template <class Result>
Async<Result> post_call(const Group& group, std::function<Result()> call) {
  auto result = std::make_shared<std::optional<Result>>();
  const std::shared_ptr<Posted> posted =
      group.transport().post([result, call = std::move(call)] { result->emplace(call()); });
  auto finish = [result, posted] {
    posted->wait();
    return std::move(**result);
  };
  return Async<Result>(std::move(finish), [posted] { return posted->is_over(); });
}

template <class Result>
Async<Result> start_posted(const Group& group, std::function<Async<Result>(Progress)> start) {
  return post_call<Result>(group, [start = std::move(start)] { return start(Progress::by_caller).wait(); });
}

// Starts a call that runs asynchronously. If its sizes are known, all of it is left to the transport's
// thread, and the caller waits for nobody. Otherwise the ranks hear one another first; if they move in the
// same meeting, the call is over by then.
template <class Result>
Async<Result> start_by_itself(const char* name, const at::Tensor& x, const Group& group, bool sizes_known,
                              std::function<Async<Result>(Progress)> start) {
  const bool posts = group.distributed() && sizes_known &&
                     named(name, [&] { return !is_on_device(x, group) && group.transport().has_thread(); });
  return posts ? start_posted(group, std::move(start)) : start(Progress::by_itself);
}

// The same for a call in which only the values of a tensor are unknown. Work on a device runs asynchronously
// without being posted.
template <class Result>
Async<Result> start_on_its_way(const char* name, const at::Tensor& x, const Group& group,
                               std::function<Async<Result>(Progress)> start) {
  const bool posts = group.distributed() && x.defined() && x.is_cpu();
  if (!posts) return start(Progress::by_itself);
  return named(name, [&] { return start_posted(group, std::move(start)); });
}

}  // namespace shardway
