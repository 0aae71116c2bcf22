#include "transport/common/repeated_moves.h"

#include "transport/common/two_routes.h"

namespace shardway {
namespace {

class StartedAgain : public RepeatedMoves {
 public:
  StartedAgain(Transport& transport, std::vector<RouteCall> calls) : transport_(transport) {
    for (RouteCall& call : calls)
      (runs_in_two(*call.route, call.x, transport) ? in_two_ : calls_).push_back(std::move(call));
  }

  void run(const Subject& subject) override {
    for (const RouteCall& call : in_two_)
      start_in_two(transport_, *call.route, call.x, call.out, subject)->finish();
    if (calls_.size() == 1) {
      transport_.start(*calls_[0].route, calls_[0].x, calls_[0].out, {}, subject)->finish();
    } else if (!calls_.empty()) {
      transport_.start_all(calls_, subject)->finish();
    }
  }

 private:
  Transport& transport_;
  std::vector<RouteCall> in_two_;
  std::vector<RouteCall> calls_;
};

class MovesInTurn : public RepeatedMoves {
 public:
  MovesInTurn(std::vector<std::unique_ptr<RepeatedMoves>> all, std::shared_ptr<const void> held)
      : held_(std::move(held)), all_(std::move(all)) {}

  void run(const Subject& subject) override {
    for (const auto& moves : all_) moves->run(subject);
  }
  void fix(const Subject& subject) override {
    for (const auto& moves : all_) moves->fix(subject);
  }

 private:
  std::shared_ptr<const void> held_;
  std::vector<std::unique_ptr<RepeatedMoves>> all_;
};

}  // namespace

std::unique_ptr<RepeatedMoves> repeated(Transport& transport, std::vector<RouteCall> calls) {
  if (auto* repeats = dynamic_cast<RepeatsMoves*>(&transport)) return repeats->repeat(std::move(calls));
  return started_again(transport, std::move(calls));
}

std::unique_ptr<RepeatedMoves> started_again(Transport& transport, std::vector<RouteCall> calls) {
  return std::make_unique<StartedAgain>(transport, std::move(calls));
}

std::unique_ptr<RepeatedMoves> moves_in_turn(std::vector<std::unique_ptr<RepeatedMoves>> all,
                                             std::shared_ptr<const void> held) {
  return std::make_unique<MovesInTurn>(std::move(all), std::move(held));
}

}  // namespace shardway
