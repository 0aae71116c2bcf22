// The verdict on what all ranks said. Every rank has the same blocks before it, so it is the same on each.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "ops/call/arguments.h"
#include "ops/call/block.h"
#include "ops/call/dtypes.h"

namespace shardway {
namespace {

std::string list_text(const int64_t* values, int64_t count) {
  std::ostringstream text;
  text << '(';
  for (int64_t i = 0; i < count; ++i) text << (i == 0 ? "" : ", ") << values[i];
  text << ')';
  return text.str();
}

// Ranks bring different sizes along the op's dim, except where all bring the whole.
bool may_differ(const BlockHeader& header, int d) {
  switch (static_cast<Collective>(header.collective)) {
    case Collective::reduce_scatter_v:
    case Collective::all_reduce:
    case Collective::broadcast:
      return false;
    default:
      return d == header.dim;
  }
}

// The shape with a star where the ranks may differ.
std::string shape_text(const BlockHeader& header) {
  std::ostringstream text;
  text << '(';
  for (int d = 0; d < header.ndim; ++d) {
    text << (d == 0 ? "" : ", ");
    if (may_differ(header, d)) {
      text << '*';
    } else {
      text << header.shape[static_cast<size_t>(d)];
    }
  }
  text << ')';
  return text.str();
}

// A thing that all ranks must say alike: its name, and how a rank's block says it.
struct Point {
  const char* name;
  std::function<std::string(const Block&)> text;
  bool is_of_tensor = true;  // and not of the whole call
};

std::string grad_name(uint8_t grad) {
  constexpr std::array kNames = {"sum", "mean", "local"};
  return kNames.at(grad);
}

const std::vector<Point>& points() {
  static const std::vector<Point> all = {
      {"dtype", [](const Block& b) { return dtype_name(static_cast<at::ScalarType>(b.header().dtype)); }},
      {"device",
       [](const Block& b) {
         return c10::DeviceTypeName(static_cast<c10::DeviceType>(b.header().device), true);
       }},
      {"number of dims", [](const Block& b) { return std::to_string(b.header().ndim); }},
      {"dim", [](const Block& b) { return std::to_string(b.header().dim); }},
      {"shape", [](const Block& b) { return shape_text(b.header()); }},
      {"op", [](const Block& b) { return std::string(name_of(static_cast<Op>(b.header().op))); },
       /*is_of_tensor=*/false},
      {"grad", [](const Block& b) { return grad_name(b.header().grad); }, /*is_of_tensor=*/false},
  };
  return all;
}

// What the points look at, as bytes: equal bytes mean equal texts, and save making them.
bool same_points(const BlockHeader& a, const BlockHeader& b) {
  if (a.dtype != b.dtype || a.device != b.device || a.ndim != b.ndim || a.dim != b.dim || a.op != b.op ||
      a.grad != b.grad) {
    return false;
  }
  for (int d = 0; d < a.ndim; ++d) {
    if (!may_differ(a, d) && a.shape[static_cast<size_t>(d)] != b.shape[static_cast<size_t>(d)]) return false;
  }
  return true;
}

[[noreturn]] void disagree(Collective collective, const std::string& what, const std::string& first,
                           const std::string& other, int64_t rank, int64_t first_rank = 0) {
  C10_THROW_ERROR(ValueError, c10::str(name_of(collective), ": ranks disagree on ", what, ": ", first,
                                       " on rank ", first_rank, ", ", other, " on rank ", rank));
}

// Behind the name of a point.
std::string of_tensor(const BlockHeader& header, int64_t index) {
  return header.list_length == 0 ? "" : c10::str(" of x[", index, "]");
}

void compare_with_first(const at::Tensor& blocks, int64_t rank, int64_t index) {
  const Block first(blocks, 0);
  const Block other(blocks, rank);
  const int64_t ranks = blocks.size(0);
  const auto collective = static_cast<Collective>(first.header().collective);
  if (!same_points(first.header(), other.header())) {
    for (const Point& point : points()) {
      if (point.text(first) == point.text(other)) continue;
      const std::string of = point.is_of_tensor ? of_tensor(first.header(), index) : "";
      disagree(collective, point.name + of, point.text(first), point.text(other), rank);
    }
  }
  const bool lists_are_shared = collective != Collective::all_to_all_v;
  if (!lists_are_shared) return;
  const bool both_gave = first.header().has_sizes != 0 && other.header().has_sizes != 0;
  if (both_gave && !std::equal(first.sizes(), first.sizes() + ranks, other.sizes())) {
    disagree(collective, "sizes" + of_tensor(first.header(), index), list_text(first.sizes(), ranks),
             list_text(other.sizes(), ranks), rank);
  }
}

// Of what is gathered: the sizes that a rank was given are those that the ranks bring.
void compare_given_with_brought(const at::Tensor& blocks, int64_t index) {
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const Block told(blocks, rank);
    if (told.header().has_sizes == 0) continue;
    for (int64_t of = 0; of < blocks.size(0); ++of) {
      const BlockHeader& brought = Block(blocks, of).header();
      const int64_t size = brought.shape[brought.dim];
      TORCH_CHECK_VALUE(told.sizes()[of] == size, name_of(static_cast<Collective>(brought.collective)),
                        ": ranks disagree on sizes", of_tensor(brought, index), ": rank ", rank, " expects ",
                        told.sizes()[of], " of rank ", of, ", which has ", size);
    }
  }
}

// Of all_to_all_v: what rank `to` expects of rank `from` is what `from` sends it.
void compare_sent_with_expected(const at::Tensor& blocks, int64_t index) {
  for (int64_t to = 0; to < blocks.size(0); ++to) {
    const Block receiver(blocks, to);
    if (receiver.header().has_recv_sizes == 0) continue;
    for (int64_t from = 0; from < blocks.size(0); ++from) {
      const int64_t sent = Block(blocks, from).sizes()[to];
      const int64_t expected = receiver.recv_sizes()[from];
      TORCH_CHECK_VALUE(sent == expected, "all_to_all_v: ranks disagree on recv_sizes",
                        of_tensor(receiver.header(), index), ": rank ", from, " sends ", sent, " to rank ",
                        to, ", which expects ", expected);
    }
  }
}

bool is_same_call(const BlockHeader& a, const BlockHeader& b) {
  return a.collective == b.collective && (a.list_length > 0) == (b.list_length > 0) &&
         a.backward_of == b.backward_of && a.forward_number == b.forward_number;
}

std::string call_text(const BlockHeader& header) {
  if (header.backward_of == 0)
    return c10::str(name_of(static_cast<Collective>(header.collective)),
                    header.list_length > 0 ? " of a list" : "");
  return c10::str("backward of ", name_of(static_cast<Collective>(header.backward_of - 1)), " (call ",
                  header.forward_number, ")");
}

void check_collectives(const at::Tensor& blocks) {
  const BlockHeader& first = Block(blocks, 0).header();
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const BlockHeader& header = Block(blocks, rank).header();
    TORCH_CHECK_VALUE(is_same_call(header, first), "ranks called different collectives: ", call_text(first),
                      " on rank 0, ", call_text(header), " on rank ", rank);
  }
}

// A gradient, whose shape its forward has settled: nothing more is to be compared.
bool is_bare_gradient(const BlockHeader& header) { return header.backward_of != 0 && header.has_tensor == 0; }

std::string text_in(const Block& block) {
  return {reinterpret_cast<const char*>(block.slot()), static_cast<size_t>(block.header().slot_bytes)};
}

// Before problems: a rank that takes itself for the root may lack what a root brings.
void compare_roots(const at::Tensor& blocks) {
  std::optional<int64_t> first;  // the first rank that says one
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const BlockHeader& header = Block(blocks, rank).header();
    if (header.root < 0) continue;
    if (!first) first = rank;
    const int64_t expected = Block(blocks, *first).header().root;
    if (header.root == expected) continue;
    const auto collective = static_cast<Collective>(header.collective);
    disagree(collective, collective == Collective::gather_v ? "dst" : "src", std::to_string(expected),
             std::to_string(header.root), rank, *first);
  }
}

// Of those that bring a list.
void compare_lengths(const at::Tensor& blocks) {
  std::optional<int64_t> first;
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const BlockHeader& header = Block(blocks, rank).header();
    if (header.has_tensor == 0) continue;
    if (!first) first = rank;
    const uint32_t expected = Block(blocks, *first).header().list_length;
    if (header.list_length == expected) continue;
    disagree(static_cast<Collective>(header.collective), "the number of tensors", std::to_string(expected),
             std::to_string(header.list_length), rank, *first);
  }
}

// Of scatter_v: the ranks without a tensor count a negative dim from its end once they know how many it has.
void compare_dims_with_root(const at::Tensor& blocks) {
  const int64_t root = Block(blocks, 0).header().root;
  const BlockHeader& source = Block(blocks, root).header();
  if (source.has_tensor == 0)  // in a dry run by another rank, which speaks for all
    raise(name_of(Collective::scatter_v), "x is None, but this rank is src", root);
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const BlockHeader& header = Block(blocks, rank).header();
    if (header.has_tensor != 0) continue;  // the root, or all where it speaks for all
    const int64_t dim = header.dim_without_tensor;
    if ((dim < 0 ? dim + source.ndim : dim) == source.dim) continue;
    disagree(Collective::scatter_v, "dim", std::to_string(source.dim), std::to_string(dim), rank, root);
  }
}

void check_problems(const at::Tensor& blocks) {
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const Block block(blocks, rank);
    const BlockHeader& header = block.header();
    if (header.has_problem == 0) continue;
    raise(name_of(static_cast<Collective>(header.collective)), text_in(block), rank);
  }
}

// Of the ranks that have a tensor.
void compare_devices(const at::Tensor& blocks) {
  std::optional<int64_t> first;
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const BlockHeader& header = Block(blocks, rank).header();
    if (header.has_tensor == 0) continue;
    if (!first) first = rank;
    const int8_t wanted = Block(blocks, *first).header().device;
    const auto name = [](int8_t device) {
      return c10::DeviceTypeName(static_cast<c10::DeviceType>(device), true);
    };
    TORCH_CHECK_VALUE(header.device == wanted, name_of(static_cast<Collective>(header.collective)),
                      ": ranks disagree on device: ", name(wanted), " on rank ", *first, ", ",
                      name(header.device), " on rank ", rank);
  }
}

// Of tensors that lie on a mesh: some ranks may have none.
bool spans_a_mesh(Collective collective) {
  return collective == Collective::redistribute || collective == Collective::shard_dim_alltoall ||
         collective == Collective::mesh_scatter || collective == Collective::mesh_broadcast;
}

// Whether every rank brings a tensor, and all but its size along the dim is alike.
bool brings_alike(Collective collective) {
  return collective != Collective::gather_sizes && collective != Collective::distribute &&
         !spans_a_mesh(collective);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Throws where two ranks' words differ.
void compare_lines(Collective collective, const std::string& first, const std::string& other, int64_t rank) {
  const std::vector<std::string> a = lines_of(first);
  const std::vector<std::string> b = lines_of(other);
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    const std::string start = a[i].substr(0, a[i].find(": ") + 2);
    // One tensor and a list have other points.
    if (!b[i].starts_with(start)) disagree(collective, "what is moved", a[i], b[i], rank);
    disagree(collective, start.substr(0, start.size() - 2), a[i].substr(start.size()),
             b[i].substr(start.size()), rank);
  }
}

}  // namespace

void check_blocks(const Blocks& blocks, wire::Slot slot) {
  const int64_t ranks = blocks.rows.size(0);
  auto* row = blocks.rows.mutable_data_ptr<uint8_t>();
  for (int64_t rank = 0; rank < ranks; ++rank, row += blocks.rows.size(1)) {
    const char* why =
        wire::why_no_block(row, blocks.bytes[static_cast<size_t>(rank)], ranks, slot, kinds_of_torch());
    TORCH_CHECK_VALUE(why == nullptr, "rank ", rank, " sent no header: ", why);
  }
}

void compare(const at::Tensor& blocks, int64_t index) {
  check_collectives(blocks);
  compare_roots(blocks);
  check_problems(blocks);
  if (is_bare_gradient(Block(blocks, 0).header())) return;
  compare_lengths(blocks);
  const auto collective = static_cast<Collective>(Block(blocks, 0).header().collective);
  if (spans_a_mesh(collective)) compare_devices(blocks);
  if (collective == Collective::scatter_v) return compare_dims_with_root(blocks);
  if (brings_alike(collective)) {
    for (int64_t rank = 1; rank < blocks.size(0); ++rank) compare_with_first(blocks, rank, index);
  }
  if (collective == Collective::all_gather_v || collective == Collective::gather_v)
    compare_given_with_brought(blocks, index);
  if (collective == Collective::all_to_all_v) compare_sent_with_expected(blocks, index);
}

bool have_same_hash(const at::Tensor& blocks) {
  const CallHash& first = Block(blocks, 0).hash();
  for (int64_t rank = 1; rank < blocks.size(0); ++rank) {
    if (Block(blocks, rank).hash() != first) return false;
  }
  return true;
}

void compare_words(const at::Tensor& blocks) {
  const Block first(blocks, 0);
  const auto collective = static_cast<Collective>(first.header().collective);
  for (int64_t rank = 1; rank < blocks.size(0); ++rank)
    compare_lines(collective, text_in(first), text_in(Block(blocks, rank)), rank);
  C10_THROW_ERROR(ValueError, c10::str(name_of(collective),
                                       ": ranks disagree on a layout that is too long to be told here"));
}

}  // namespace shardway
