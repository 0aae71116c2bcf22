// A call that is planned, agreed on and allocated once, and run many times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardway/group.h"

namespace [[gnu::visibility("default")]] shardway {

// What one run of a prepared call moves between the ranks of its group, in bytes.
struct RunBytes {
  int64_t ranks = 1;
  std::vector<int64_t> sent = {};   // from rank a to rank b at a * ranks + b; 0 from a rank to itself
  std::vector<int64_t> least = {};  // by rank: what it has to receive, whatever the plan
  int64_t exchanges = 0;            // how often the ranks meet

  int64_t sent_by(int64_t rank) const;
  int64_t received_by(int64_t rank) const;
  int64_t total() const;
  int64_t least_total() const;
  int64_t busiest_rank() const;  // sends or receives most
};

// Who sends how much to whom, as text.
std::string explain(const RunBytes& bytes);

// One call with its tensors. Its outputs are those of the call that was prepared, and every run overwrites
// them. One thread at a time may use it.
class PreparedCall {
 public:
  // Collective: makes the call again. Nothing is planned, allocated or agreed on but the number of the run,
  // which ranks that share memory compare. The inputs are read where they lie.
  void run();

  // The same with other inputs of the same shapes and dtypes on the same device, from this run on. Undefined
  // entries stand for inputs that this rank does not have. Throws c10::ValueError if an input does not fit:
  // on every rank if ranks share memory or compare every call (SHARDWAY_CHECK=1). Elsewhere the group ends,
  // and the other ranks throw a c10::DistBackendError that says why.
  void run(const std::vector<at::Tensor>& inputs);

  // For a caller that cannot run it: counts as a run, and throws as run does for an input that does not fit.
  [[noreturn]] void refuse(const std::string& problem);

  // Local: for a caller whose inputs alternate between several sets of tensors. Moves stay ready for that
  // many sets, and keep their tensors; by default for the last one.
  void keep_ready(int64_t sets);

  // Collective: from now on the tensors stay the same, and where they are, on every rank; a run that finds
  // one elsewhere throws. Ranks that share a GPU then have nothing to tell one another: a run queues its
  // work, the host waits for nobody, and a run may be captured in a CUDA graph. Every rank has to replay it
  // as often as the others, in the same order.
  void fix();

  // Local: releases tensors and buffers. A later run throws.
  void close();

  // Local. Without a group of several ranks nothing is kept: the caller makes the plain call instead.
  bool distributed() const;
  const RunBytes& bytes() const;
  std::string explain() const;

  struct [[gnu::visibility("hidden")]] State;
  explicit PreparedCall(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// While it lives, the next call of this thread is prepared: a collective of collectives.h, a redistribution
// of one tensor or of a list. The call itself is made, too. It refuses inputs that require grad.
class Preparation {
 public:
  Preparation();
  ~Preparation();
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  // Collective: the ranks tell one another how much they move. Called once, after the call.
  PreparedCall finish();

  // Local: from now on calls are plain ones again. Does nothing if it is finished.
  void cancel();

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

template <class Result>
struct PreparedResult {
  Result result;
  PreparedCall call;
};

// Makes a call that can be made again:
//   auto [gathered, again] = prepare([&] { return all_gather_v(x, {.group = world}); });
//   again.run();  // reads x, writes gathered.tensor
template <class Body>
PreparedResult<std::invoke_result_t<Body>> prepare(Body&& body) {
  Preparation preparation;
  auto result = std::forward<Body>(body)();
  return {std::move(result), preparation.finish()};
}

}  // namespace shardway
