#include "ops/mesh/told_layouts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/block.h"
#include "ops/call/header.h"
#include "ops/call/numbering.h"
#include "ops/mesh/redistribution.h"
#include "plan/geometry/group_ranks.h"
#include "terms/comparison.h"
#include "terms/numbers.h"

namespace shardway {
namespace {

using wire::append_list;
using wire::NumberReader;
using Form = KnownLayouts::Form;
using Numbers = std::vector<int64_t>;

constexpr uint64_t kLayouts = shm::mark_of("layouts");

// What an entry says of its tensor. Neighbours in a list often lie alike.
enum class Entry : int64_t { unknown, as_before, follows };

void write(const Layout& layout, Numbers& to) {
  to.push_back(static_cast<int64_t>(layout.dtype()));
  append_list(to, layout.shape());
  append_list(to, layout.mesh().shape());
  append_list(to, layout.mesh().ranks());
  for (const Placement& placement : layout.placements()) {
    to.push_back(static_cast<int64_t>(placement.kind));
    to.push_back(placement.dim);
    to.push_back(static_cast<int64_t>(placement.op));
    append_list(to, placement.sizes);
  }
  for (const Numbers& dims : layout.order()) append_list(to, dims);
}

Numbers written(const KnownLayouts& known) {
  Numbers numbers = {static_cast<int64_t>(known.form), static_cast<int64_t>(known.layouts.size())};
  const std::optional<Layout>* before = nullptr;
  for (const std::optional<Layout>& layout : known.layouts) {
    const bool is_as_before = before != nullptr && layout && *before && **before == *layout;
    const Entry entry = !layout ? Entry::unknown : is_as_before ? Entry::as_before : Entry::follows;
    numbers.push_back(static_cast<int64_t>(entry));
    if (entry == Entry::follows) write(*layout, numbers);
    before = &layout;
  }
  return numbers;
}

// One of an enum whose values end with `last`.
template <class Enum>
Enum next_of(NumberReader& reader, Enum last) {
  return static_cast<Enum>(reader.next(0, static_cast<int64_t>(last)));
}

Placement next_placement(NumberReader& reader) {
  Placement read;
  read.kind = next_of(reader, Placement::Kind::partial);
  read.dim = reader.next(0, wire::kMaxDims);
  read.op = next_of(reader, Op::product);
  read.sizes = reader.list();
  return read;
}

Layout next_layout(NumberReader& reader) {
  const auto dtype = next_of(reader, DType::c128);
  Numbers shape = reader.list();
  Numbers grid = reader.list();
  Mesh mesh(grid, reader.list(), {});
  std::vector<Placement> placements;
  for (size_t d = 0; d < grid.size(); ++d) placements.push_back(next_placement(reader));
  ShardOrder order;
  for (size_t d = 0; d < shape.size(); ++d) order.push_back(reader.list());
  return {std::move(shape), dtype, std::move(mesh), std::move(placements), std::move(order)};
}

// Reads what a rank wrote. Throws std::invalid_argument if it is not that.
KnownLayouts known_in(const Numbers& numbers) {
  NumberReader reader(numbers);
  KnownLayouts known{.form = next_of(reader, Form::any)};
  const int64_t count = reader.next(0, static_cast<int64_t>(numbers.size()));
  for (int64_t i = 0; i < count; ++i) {
    const auto entry = next_of(reader, Entry::follows);
    if (entry == Entry::as_before && (known.layouts.empty() || !known.layouts.back()))
      throw std::invalid_argument("there is no layout before");
    known.layouts.push_back(entry == Entry::follows     ? std::optional(next_layout(reader))
                            : entry == Entry::as_before ? known.layouts.back()
                                                        : std::nullopt);
  }
  return known;
}

// The piece of its numbers that a rank put into its block.
Numbers piece_in(const at::Tensor& slot, int64_t rank) {
  const bool is_piece = slot.defined() && slot.scalar_type() == at::kLong && slot.dim() == 1;
  TORCH_CHECK_VALUE(is_piece, "rank ", rank, " sent no layouts");
  const auto* numbers = slot.const_data_ptr<int64_t>();
  return {numbers, numbers + slot.numel()};
}

// Every rank's numbers, by rank. They go in pieces, each as the tensor of a block whose out_size tells how
// many numbers there are in all.
std::vector<Numbers> exchanged(const Numbers& mine, const Group& group) {
  const auto count = static_cast<int64_t>(mine.size());
  const at::Tensor numbers = at::tensor(mine, at::kLong);
  const int64_t piece = (row_bytes(group) - wire::longest_line(group.size())) / int64_t{sizeof(int64_t)};
  std::vector<Numbers> all(static_cast<size_t>(group.size()));
  int64_t longest = count;
  for (int64_t begin = 0; begin < longest; begin += piece) {
    const int64_t from = std::min(begin, count);
    const Call call{.collective = Collective::redistribute,
                    .x = numbers.narrow(0, from, std::min(piece, count - from)),
                    .out_size = count,
                    .wanted = Wanted::whole};
    const at::Tensor block = block_of(call, group, piece * int64_t{sizeof(int64_t)});
    const Agreement agreed =
        agreement_in(gathered(call, block, row_bytes(group), group, kLayouts), call, group);
    const KnownInputs pieces = agreed.known_inputs();
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      const auto r = static_cast<size_t>(rank);
      const Numbers part = pieces.empty() ? Numbers{} : piece_in(pieces[r], rank);
      all[r].insert(all[r].end(), part.begin(), part.end());
      longest = std::max(longest, agreed.out_size(rank));
    }
  }
  return all;
}

std::vector<KnownLayouts> read_all(const std::vector<Numbers>& numbers) {
  std::vector<KnownLayouts> all;
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    const std::string problem = problem_in([&] { all.push_back(known_in(numbers[rank])); });
    TORCH_CHECK_VALUE(problem.empty(), "redistribute: rank ", rank,
                      ": its layouts cannot be read: ", problem);
  }
  return all;
}

std::string text_of(const KnownLayouts& known) {
  return known.form == Form::one ? "one tensor" : c10::str("a list of ", known.layouts.size());
}

// What the ranks know of one tensor, and who knows it first.
struct FoundLayout {
  const Layout* layout = nullptr;
  size_t rank = 0;
};

wire::RankWords words_on(size_t rank, std::string words) {
  return {.words = std::move(words), .rank = static_cast<int64_t>(rank)};
}

[[noreturn]] void disagree(const std::string& what, const wire::RankWords& first,
                           const wire::RankWords& other) {
  C10_THROW_ERROR(ValueError, wire::disagreement_on(what, Collective::redistribute, first, other));
}

// All that the ranks know. Every rank has the same, and comes to the same verdict.
class LayoutsOfAll {
 public:
  LayoutsOfAll(const std::vector<KnownLayouts>& all, const Group& group)
      : all_(all), numbers_(group.global_ranks()) {}

  HeardLayouts merged() const {
    const KnownLayouts& model = all_[first_with_form()];
    HeardLayouts heard{.is_list = model.form == Form::list};
    for (size_t i = 0; i < model.layouts.size(); ++i) {
      heard.layouts.push_back(*found(i, heard.is_list).layout);
      check_askers(i, heard.layouts.back(), heard.is_list);
    }
    return heard;
  }

 private:
  // Throws if two ranks move different numbers of tensors.
  size_t first_with_form() const {
    std::optional<size_t> first;
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (all_[rank].form == Form::any) continue;
      if (!first) first = rank;
      const KnownLayouts& model = all_[*first];
      const bool is_alike =
          all_[rank].form == model.form && all_[rank].layouts.size() == model.layouts.size();
      if (!is_alike)
        disagree("what is moved", words_on(*first, text_of(model)), words_on(rank, text_of(all_[rank])));
    }
    TORCH_CHECK_VALUE(first, "redistribute: every rank passes None, so no rank has a tensor");
    return *first;
  }

  static std::string name_of_tensor(size_t i, bool is_list) {
    return is_list ? c10::str("t[", i, "]") : std::string("t");
  }

  FoundLayout found(size_t i, bool is_list) const {
    FoundLayout first;
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (all_[rank].form == Form::any || !all_[rank].layouts[i]) continue;
      const Layout& layout = *all_[rank].layouts[i];
      if (first.layout == nullptr) first = {.layout = &layout, .rank = rank};
      if (layout != *first.layout)
        disagree(name_of_tensor(i, is_list), words_on(first.rank, described(*first.layout)),
                 words_on(rank, described(layout)));
    }
    TORCH_CHECK_VALUE(first.layout != nullptr, "redistribute: ", name_of_tensor(i, is_list),
                      " is None on every rank");
    return first;
  }

  // A rank may not ask for a tensor of which it should have a part.
  void check_askers(size_t i, const Layout& layout, bool is_list) const {
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      const bool asks = all_[rank].form == Form::any || !all_[rank].layouts[i];
      const bool is_inside =
          layout.mesh().position_of(numbers_.number_of(static_cast<int64_t>(rank))).has_value();
      TORCH_CHECK_VALUE(!asks || !is_inside, "redistribute: ", name_of_tensor(i, is_list),
                        " is None, but this rank is in the mesh of ", described(layout), " (rank ", rank,
                        ")");
    }
  }

  const std::vector<KnownLayouts>& all_;
  GroupRanks numbers_;
};

}  // namespace

HeardLayouts tell_layouts(const KnownLayouts& mine, const Group& group) {
  return numbered(group, [&] {
    const std::vector<KnownLayouts> all = read_all(exchanged(written(mine), group));
    return LayoutsOfAll(all, group).merged();
  });
}

HeardLayouts hear_layouts(const std::vector<std::optional<Layout>>& known, const Group& group) {
  if (!group.distributed()) raise("redistribute", "t is None, and there is no other rank that has it", 0);
  try {
    agree({.collective = Collective::redistribute}, group);
  } catch (const LayoutsAsked&) {  // this rank's own question is among the blocks
    const Form form = known.empty() ? Form::any : Form::list;
    return tell_layouts({.form = form, .layouts = known}, group);
  }
  raise("redistribute", "the other ranks did not hear that t is None", group.rank());
}

}  // namespace shardway
