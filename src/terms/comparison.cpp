#include "terms/comparison.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "terms/points.h"

namespace shardway::wire {
namespace {

using Sentence = std::string;  // empty: they agree

template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

Sentence differ(Collective collective, const std::string& what, const std::string& first, int64_t first_rank,
                const std::string& other, int64_t rank) {
  return str(name_of(collective), ": ranks disagree on ", what, ": ", first, " on rank ", first_rank, ", ",
             other, " on rank ", rank);
}

std::string list_text(const int64_t* values, int64_t count) {
  std::ostringstream text;
  text << '(';
  for (int64_t i = 0; i < count; ++i) text << (i == 0 ? "" : ", ") << values[i];
  text << ')';
  return text.str();
}

std::string call_text(const BlockView& block) {
  const BlockHeader& header = block.header();
  if (header.backward_of == 0)
    return str(name_of(block.collective()), header.list_length > 0 ? " of a list" : "");
  return str("backward of ", name_of(static_cast<Collective>(header.backward_of - 1)), " (call ",
             header.forward_number, ")");
}

bool is_same_call(const BlockHeader& a, const BlockHeader& b) {
  return a.collective == b.collective && (a.list_length > 0) == (b.list_length > 0) &&
         a.backward_of == b.backward_of && a.forward_number == b.forward_number;
}

// Whether this is one of torch.distributed's calls in which all ranks have tensors of one size.
bool is_of_one_size(Collective collective) {
  return collective == Collective::dist_all_reduce || collective == Collective::dist_broadcast ||
         collective == Collective::dist_reduce;
}

// All ranks' blocks of one call.
class Comparison {
 public:
  Comparison(const BlockRows& blocks, const Kinds& kinds, int64_t index)
      : blocks_(blocks), kinds_(kinds), index_(index), collective_(blocks[0].collective()) {}

  // The block of a gradient whose shape was settled by its forward call only says which gradient it is.
  bool is_bare_gradient() const {
    const BlockHeader& header = blocks_.header(0);
    return header.backward_of != 0 && !header.has_tensor;
  }

  Sentence calls() const {
    const BlockHeader& first = blocks_.header(0);
    return first_of([&](int64_t rank) -> Sentence {
      if (is_same_call(blocks_.header(rank), first)) return {};
      return different_calls({.words = call_text(blocks_[0])},
                             {.words = call_text(blocks_[rank]), .rank = rank});
    });
  }

  // Checked before problems(): a rank that wrongly takes itself for the root may lack what a root brings.
  Sentence roots() const {
    const char* what = collective_ == Collective::gather_v ? "dst" : "src";
    return alike_where([](const BlockHeader& header) { return header.root >= 0; },
                       [](const BlockHeader& header) { return header.root; },
                       is_of_torch(collective_) ? "the root" : what, number_text);
  }

  Sentence problems() const {
    return first_of([&](int64_t rank) -> Sentence {
      const BlockView block = blocks_[rank];
      if (!block.header().has_problem) return {};
      return str(name_of(block.collective()), ": ", block.text(), " (rank ", rank, ")");
    });
  }

  // Compares the ranks that bring a list.
  Sentence lengths() const {
    return alike_where(
        has_tensor, [](const BlockHeader& header) { return header.list_length; }, "the number of tensors",
        number_text);
  }

  Sentence devices() const {
    return alike_where(
        has_tensor, [](const BlockHeader& header) { return header.device; },
        name_of_point(Point::device, collective_), kinds_.device_name);
  }

  Sentence points() const {
    return first_of([&](int64_t rank) -> Sentence {
      if (same_points(blocks_[0], blocks_[rank])) return {};
      for (size_t point = 0; point <= static_cast<size_t>(Point::factor); ++point) {
        Sentence sentence = disagreement_on(static_cast<Point>(point), 0, rank);
        if (!sentence.empty()) return sentence;
      }
      return {};
    });
  }

  Sentence disagreement_on(Point point, int64_t first, int64_t other) const {
    const std::string text = text_of(point, blocks_[first], kinds_);
    const std::string other_text = text_of(point, blocks_[other], kinds_);
    if (text == other_text) return {};
    const std::string what = name_of_point(point, collective_) + (is_of_call(point) ? "" : of_tensor());
    return differ(collective_, what, text, first, other_text, other);
  }

  // A rank that was given sizes must have been given the same as rank 0, if rank 0 was given any.
  Sentence shared_sizes() const {
    const BlockView first = blocks_[0];
    return first_of([&](int64_t rank) -> Sentence {
      const BlockView other = blocks_[rank];
      const bool both_gave = first.header().has_sizes && other.header().has_sizes;
      const int64_t ranks = blocks_.size();
      if (!both_gave || std::equal(first.sizes(), first.sizes() + ranks, other.sizes())) return {};
      return differ(collective_, "sizes" + of_tensor(), list_text(first.sizes(), ranks), 0,
                    list_text(other.sizes(), ranks), rank);
    });
  }

  // For gathers: the sizes that a rank was given must be those that the ranks bring.
  Sentence given_and_brought() const {
    return first_of([&](int64_t rank) -> Sentence {
      const BlockView told = blocks_[rank];
      if (!told.header().has_sizes) return {};
      return first_of([&](int64_t of) -> Sentence {
        const int64_t size = blocks_[of].extent();
        if (told.sizes()[of] == size) return {};
        return str(name_of(collective_), ": ranks disagree on sizes", of_tensor(), ": rank ", rank,
                   " expects ", told.sizes()[of], " of rank ", of, ", which has ", size);
      });
    });
  }

  // For all_to_all_v: what rank `to` expects from rank `from` must be what `from` sends to it.
  Sentence sent_and_expected() const {
    return first_of([&](int64_t to) -> Sentence {
      if (!blocks_.header(to).has_recv_sizes) return {};
      return first_of([&](int64_t from) -> Sentence {
        const int64_t sent = blocks_[from].sent_to(to);
        const int64_t expected = blocks_[to].expected_of(from);
        if (sent == expected) return {};
        return str(name_of(collective_), ": ranks disagree on recv_sizes", of_tensor(), ": rank ", from,
                   " sends ", sent, " to rank ", to, ", which expects ", expected);
      });
    });
  }

  // For scatter_v: a rank without a tensor may give a negative dim, which counts from the end of the root's
  // dims.
  Sentence dims_of_root() const {
    const int64_t root = blocks_.header(0).root;
    const BlockHeader& source = blocks_.header(root);
    if (!source.has_tensor)  // in a dry run, where a rank other than the root speaks for all
      return str(name_of(collective_), ": x is None, but this rank is src (rank ", root, ")");
    return first_of([&](int64_t rank) -> Sentence {
      const BlockHeader& header = blocks_.header(rank);
      if (header.has_tensor) return {};  // the root; in its dry run, every rank
      if ((header.dim < 0 ? header.dim + source.ndim : header.dim) == source.dim) return {};
      return differ(collective_, "dim", std::to_string(source.dim), root, std::to_string(header.dim), rank);
    });
  }

  // For torch.distributed's calls: what each rank sends must be what its receivers expect.
  Sentence counts() const {
    if (is_of_one_size(collective_))
      return alike_where(
          has_tensor, [](const BlockHeader& header) { return header.in_size; }, "the number of elements",
          number_text);
    return first_of([&](int64_t from) {
      return first_of([&](int64_t to) { return is_pair(from, to) ? count_of(from, to) : Sentence(); });
    });
  }

 private:
  static bool has_tensor(const BlockHeader& header) { return header.has_tensor; }
  static std::string number_text(int64_t number) { return std::to_string(number); }

  // The sentence of the first rank for which `find` returns one.
  template <class Find>
  Sentence first_of(const Find& find) const {
    for (int64_t rank = 0; rank < blocks_.size(); ++rank) {
      Sentence sentence = find(rank);
      if (!sentence.empty()) return sentence;
    }
    return {};
  }

  // All ranks for which `is_asked` holds must give the same number.
  template <class IsAsked, class Number>
  Sentence alike_where(const IsAsked& is_asked, const Number& number, const char* what,
                       std::string (*text)(int64_t number)) const {
    std::optional<int64_t> first;
    return first_of([&](int64_t rank) -> Sentence {
      const BlockHeader& header = blocks_.header(rank);
      if (!is_asked(header)) return {};
      if (!first) first = rank;
      const auto expected = number(blocks_.header(*first));
      if (number(header) == expected) return {};
      return differ(collective_, what, text(expected), *first, text(number(header)), rank);
    });
  }

  // Follows the name of a point; empty unless the tensor is in a list.
  std::string of_tensor() const {
    return blocks_.header(0).list_length == 0 ? "" : str(" of x[", index_, "]");
  }

  bool is_pair(int64_t from, int64_t to) const {
    const int64_t root = blocks_.header(0).root;
    if (collective_ == Collective::dist_gather) return to == root;
    return collective_ != Collective::dist_scatter || from == root;
  }

  Sentence count_of(int64_t from, int64_t to) const {
    const int64_t sent = blocks_[from].sent_to(to);
    const int64_t expected = blocks_[to].expected_of(from);
    if (sent == expected) return {};
    return str(name_of(collective_), ": rank ", from, " sends ", sent, " elements to rank ", to,
               ", which expects ", expected);
  }

  const BlockRows& blocks_;
  const Kinds& kinds_;
  int64_t index_;
  Collective collective_;
};

// Asks for verdicts in order and returns the first that is not empty.
template <class... Ask>
Sentence first_sentence(const Comparison& comparison, Ask... ask) {
  Sentence sentence;
  (void)((sentence = (comparison.*ask)()).empty() && ...);
  return sentence;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A sentence about the first line in which two ranks' words differ.
Sentence differing_line(Collective collective, std::string_view first, std::string_view other, int64_t rank) {
  const std::vector<std::string> a = lines_of(first);
  const std::vector<std::string> b = lines_of(other);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    const std::string start = a[i].substr(0, a[i].find(": ") + 2);
    // A single tensor and a list have different points.
    if (!b[i].starts_with(start)) return differ(collective, "what is moved", a[i], 0, b[i], rank);
    return differ(collective, start.substr(0, start.size() - 2), a[i].substr(start.size()), 0,
                  b[i].substr(start.size()), rank);
  }
  return {};
}

// Whether every rank brings a tensor and says nothing that could contradict another rank. A quick look, in
// one pass: false only means that the ranks have to be compared point by point.
bool agree_at_a_glance(const BlockRows& blocks) {
  const BlockView first = blocks[0];
  const BlockHeader& header = first.header();
  if (is_of_torch(first.collective()) || first.collective() == Collective::scatter_v) return false;
  for (int64_t rank = 0; rank < blocks.size(); ++rank) {
    const BlockView block = blocks[rank];
    const BlockHeader& other = block.header();
    const bool is_plain = other.has_tensor && !other.has_problem && !other.has_recv_sizes &&
                          (!other.has_sizes || first.collective() == Collective::all_to_all_v);
    const bool is_alike = is_same_call(other, header) && other.root == header.root &&
                          other.list_length == header.list_length && same_points(first, block);
    if (!is_plain || !is_alike) return false;
  }
  return true;
}

}  // namespace

std::string why_no_blocks(const BlockRows& rows, std::span<const int64_t> bytes, Slot slot,
                          const Kinds& kinds) {
  for (int64_t rank = 0; rank < rows.size(); ++rank) {
    const char* why =
        why_no_block(rows.row(rank), bytes[static_cast<size_t>(rank)], rows.size(), slot, kinds);
    if (why != nullptr) return str("rank ", rank, " sent no header: ", why);
  }
  return {};
}

std::string disagreement(const BlockRows& blocks, const Kinds& kinds, int64_t index) {
  if (agree_at_a_glance(blocks)) return {};
  using C = Comparison;
  const C comparison(blocks, kinds, index);
  Sentence sentence = first_sentence(comparison, &C::calls, &C::roots, &C::problems);
  if (!sentence.empty() || comparison.is_bare_gradient()) return sentence;
  sentence = comparison.lengths();
  if (!sentence.empty()) return sentence;
  switch (blocks[0].collective()) {
    case Collective::all_gather_v:
    case Collective::gather_v:
      return first_sentence(comparison, &C::points, &C::shared_sizes, &C::given_and_brought);
    case Collective::all_to_all_v:
      return first_sentence(comparison, &C::points, &C::sent_and_expected);
    case Collective::reduce_scatter_v:
    case Collective::all_reduce:
    case Collective::broadcast:
      return first_sentence(comparison, &C::points, &C::shared_sizes);
    case Collective::scatter_v:
      return comparison.dims_of_root();
    case Collective::redistribute:  // the ranks outside the mesh bring no tensor
    case Collective::shard_dim_alltoall:
    case Collective::mesh_scatter:
    case Collective::mesh_broadcast:
      return comparison.devices();
    case Collective::gather_sizes:
    case Collective::distribute:
    case Collective::dist_barrier:
      return {};
    case Collective::dist_sparse_all_reduce:
      return comparison.points();
    default:
      return first_sentence(comparison, &C::points, &C::counts);
  }
}

std::string disagreement_on(Point point, const BlockRows& blocks, const Kinds& kinds, int64_t first,
                            int64_t other) {
  return Comparison(blocks, kinds, 0).disagreement_on(point, first, other);
}

std::string disagreement_on(const std::string& what, Collective collective, const RankWords& first,
                            const RankWords& other) {
  return differ(collective, what, first.words, first.rank, other.words, other.rank);
}

std::string different_calls(const RankWords& first, const RankWords& other) {
  return str("ranks called different collectives: ", first.words, " on rank ", first.rank, ", ", other.words,
             " on rank ", other.rank);
}

bool have_same_hash(const BlockRows& blocks) {
  for (int64_t rank = 0; rank < blocks.size(); ++rank) {
    if (!blocks.header(rank).has_hash || blocks[rank].hash() != blocks[0].hash()) return false;
  }
  return true;
}

std::string disagreement_on_calls(const BlockRows& blocks) {
  for (int64_t rank = 1; rank < blocks.size(); ++rank) {
    if (blocks[rank].hash() != blocks[0].hash())
      return different_calls({.words = std::string(blocks[0].text())},
                             {.words = std::string(blocks[rank].text()), .rank = rank});
  }
  return {};
}

std::string disagreement_in_words(const BlockRows& blocks) {
  const Collective collective = blocks[0].collective();
  for (int64_t rank = 1; rank < blocks.size(); ++rank) {
    Sentence sentence = differing_line(collective, blocks[0].text(), blocks[rank].text(), rank);
    if (!sentence.empty()) return sentence;
  }
  return str(name_of(collective), ": ranks disagree on a layout that is too long to be told here");
}

}  // namespace shardway::wire
