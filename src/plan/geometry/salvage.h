// What is left of a tensor when ranks that held parts of it are gone, and the way from there to a layout of
// the living.
#pragma once

#include <string>
#include <vector>

#include "plan/geometry/exchange_rules.h"
#include "plan/geometry/group_ranks.h"

namespace shardway {

// A part of the tensor that is in no living rank's memory.
struct LostBox {
  Box box = {};
  std::vector<int64_t> gone = {};  // the ranks that had it or an addend of it, ascending

  bool operator==(const LostBox&) const = default;
};

// One tensor that lies in several layouts at once. The ranks of the meshes that the group does not have are
// gone.
//
// A rank gets each part of its new box from the first layout in which a living rank holds it: from the
// replica that it would read if all lived (ExchangeRules), else from another living one. A part of which
// there are addends is held if each addend is.
//
// Example, 4 ranks with 2 rows each, rank 1 gone. In the second layout the rows of rank r lie on rank r + 1:
//   to 3 ranks with 3, 3 and 2 rows, seen by rank 0: of the first layout it pulls rows [0,2) from itself, of
//   the second layout row 2 from rank 2.
class Salvage {
 public:
  // `to` is on living ranks. Throws std::invalid_argument if it is not, if shapes or dtypes differ, or if
  // addends would have to be made.
  Salvage(std::vector<Layout> layouts, Layout to, GroupRanks living);

  // The parts that no living rank holds, in the order in which they lie in the tensor.
  std::vector<LostBox> lost() const;

  // One route per layout, as rank `rank` of the group runs it. If nothing is lost they fill its output
  // together: each element lands in one of them. Takes time proportional to the ranks of `to`.
  std::vector<Route> routes(int64_t rank) const;

 private:
  struct Source {
    Layout layout;
    ExchangeRules rules;
    std::vector<int64_t> replicas;  // distances between positions that hold the same
    std::vector<int64_t> addends;   // distances between positions whose addends are combined
  };
  struct Piece {
    size_t source;
    Box box;                         // in the tensor
    std::vector<int64_t> positions;  // in the source's mesh: one per addend
  };

  bool lives(const Source& source, int64_t position) const;
  std::optional<int64_t> holder_of(const Source& source, int64_t place, int64_t receiver) const;
  std::vector<int64_t> holders_of(const Source& source, int64_t place, int64_t receiver) const;
  template <class Held, class Lost>
  void find(const Box& wanted, size_t source, int64_t receiver, const Held& held, const Lost& lost) const;
  template <class Held>
  void find_held(const Box& wanted, int64_t receiver, const Held& held) const;
  std::vector<int64_t> gone_with(const Box& box) const;
  void add_pulls(int64_t receiver, std::vector<Route>& routes) const;
  void add_pushes(size_t source, int64_t position, Route& route) const;

  std::vector<Source> sources_;
  Layout to_;
  GroupRanks living_;
};

// f32[8,6] on 4: S0 has lost [2,4)×[0,6) with rank 1
std::string to_string(const std::vector<LostBox>& lost, const Layout& layout);

}  // namespace shardway
