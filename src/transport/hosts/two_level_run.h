// Routes that run in two levels, each by its plan and all of them together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "plan/hosts/two_levels.h"
#include "transport/c10d/mail.h"
#include "transport/common/transport.h"

namespace shardway {

// The dtype in which addends are combined.
at::ScalarType wide(at::ScalarType dtype);

// out = op over the addends, which have the wide dtype of out, divided by `divisor`.
void combine_into(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor);

// One route and its memory. `plan` and the call's route outlive it.
class TwoLevelRun {
 public:
  TwoLevelRun(const TwoLevels& plan, const RouteCall& call);

  bool is_small() const { return call_.is_small; }

  // The routes of the plan on their memory; nothing for one that no rank of the host needs.
  std::optional<RouteCall> copies() const;
  std::optional<RouteCall> sums() const;
  std::optional<RouteCall> crossing() const;
  std::optional<RouteCall> home() const;
  std::optional<RouteCall> handover() const;

  // After all of them: brings what came to its place in the output.
  void land() const;

 private:
  at::Tensor packed() const;
  void combine() const;
  void divide() const;
  at::Tensor addend(const HostOperand& operand, const Box& box) const;
  RouteCall on(const Route& route, const at::Tensor& x, const at::Tensor& out) const;

  const TwoLevels& plan_;
  RouteCall call_;
  at::Tensor staged_;
  at::Tensor landed_;
  at::Tensor sums_;
  at::Tensor crossed_;
};

// What the ranks communicate by.
struct TwoLevelWays {
  const Transport& whole;  // of all ranks
  Transport& inside;       // of the ranks of this host
  MailOffice& between;     // of all ranks
};

// Routes under way: one exchange between hosts for what is copied and one for sums, one call inside the host
// for each kind of move. Small routes share a message per pair of ranks.
class RunsUnderWay {
 public:
  // Expects what will come. The inputs may still be in the making.
  RunsUnderWay(std::vector<TwoLevelRun> runs, const TwoLevelWays& ways, const Subject& subject);
  ~RunsUnderWay();

  // Adds what crosses, and sends it. Once, before finish().
  void start();

  // Receives, and brings everything to its place. Once.
  void finish();

 private:
  class Crossings;

  std::unique_ptr<Crossings> crossings(std::optional<RouteCall> (TwoLevelRun::*route)() const) const;

  std::vector<TwoLevelRun> runs_;
  TwoLevelWays ways_;
  const Subject& subject_;
  std::unique_ptr<Crossings> copies_;
  std::unique_ptr<Crossings> sums_;
};

}  // namespace shardway
