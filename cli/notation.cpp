#include "cli/notation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/nearest.h"
#include "cli/text_cursor.h"

namespace shardway::cli {
namespace {

constexpr const char* kPlacementForms = "it is R, S0, S0[3,0,5], P or P(max)";
constexpr int64_t kMostListedRanks = int64_t{1} << 20;

void read_named_dims(TextCursor& cursor, std::vector<int64_t>& shape, std::vector<std::string>& names) {
  do {
    const size_t column = cursor.column();
    names.push_back(cursor.word());
    if (names.back().empty()) cursor.refuse_at(column, "must be a name and its ranks, such as dp=2");
    cursor.need('=', "after the name, as in " + names.back() + "=2");
    shape.push_back(cursor.number("the ranks along " + names.back() + ", such as 2"));
  } while (cursor.take(','));
}

std::vector<int64_t> read_lengths(TextCursor& cursor, const std::string& of_what) {
  std::vector<int64_t> lengths;
  do {
    lengths.push_back(cursor.number(of_what));
  } while (cursor.take('x'));
  return lengths;
}

std::vector<int64_t> read_ranks(TextCursor& cursor) {
  std::vector<int64_t> ranks;
  do {
    const size_t column = cursor.column();
    const int64_t first = cursor.number("a rank or a range such as 0-3");
    const int64_t last = cursor.take('-') ? cursor.number("the last rank of a range such as 0-3") : first;
    if (last < first || last - first >= kMostListedRanks) {
      cursor.refuse_at(column, "must be a range that ascends, such as 0-3");
    }
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (static_cast<int64_t>(ranks.size()) > kMostListedRanks) cursor.refuse_at(column, "are too many ranks");
  } while (cursor.take(','));
  return ranks;
}

Placement read_shard(TextCursor& cursor) {
  const bool is_call = cursor.take('(');
  if (is_call && cursor.rest().starts_with("dim=")) cursor.skip(4);
  Placement placement = shard(cursor.number("the tensor dim that S splits, such as S0"));
  if (is_call) cursor.need(')', "after the dim, as in Shard(0)");
  if (!cursor.take('[')) return placement;
  do {
    placement.sizes.push_back(cursor.number("a length per rank, such as [3,0,5]"));
  } while (cursor.take(','));
  cursor.need(']', "after the lengths, as in [3,0,5]");
  return placement;
}

Placement read_replicate(TextCursor& cursor) {
  if (cursor.take('(')) cursor.need(')', "as in Replicate()");
  return replicate();
}

Placement read_partial(TextCursor& cursor) {
  if (!cursor.take('(') || cursor.take(')')) return partial();
  const size_t column = cursor.column();
  const std::string op = cursor.word();
  cursor.need(')', "after the op, as in P(max)");
  if (op == "mean") return partial(Op::avg);
  for (const Op known : {Op::sum, Op::avg, Op::min, Op::max, Op::product}) {
    if (op == name_of(known)) return partial(known);
  }
  cursor.refuse_at(column, "is not an op" + did_you_mean(op, {"sum", "avg", "min", "max", "product"}) +
                               "; it is sum, avg, min, max or product");
}

Placement read_placement(TextCursor& cursor) {
  const size_t column = cursor.column();
  const std::string word = lower_case(cursor.letters());
  if (word == "s" || word == "shard") return read_shard(cursor);
  if (word == "r" || word == "replicate") return read_replicate(cursor);
  if (word == "p" || word == "partial") return read_partial(cursor);
  cursor.refuse_at(column, "is not a placement" + did_you_mean(word, {"Shard", "Replicate", "Partial"}) +
                               "; " + kPlacementForms);
}

// A mesh dim's place among those that split the same tensor dim, and where it was written.
struct SplitPlace {
  std::optional<int64_t> number = {};
  size_t column = 0;
};

// Example: "S0.1,S0.0" has the places 1 and 0, so mesh dim 1 splits first: {{1, 0}}.
ShardOrder order_from(const TextCursor& cursor, const std::vector<Placement>& placements,
                      const std::vector<SplitPlace>& places, int64_t tensor_dims) {
  ShardOrder order(static_cast<size_t>(tensor_dims));
  for (size_t dim = 0; dim < order.size(); ++dim) {
    std::vector<size_t> splitters;
    for (size_t m = 0; m < placements.size(); ++m) {
      if (placements[m].is_shard() && placements[m].dim == static_cast<int64_t>(dim)) splitters.push_back(m);
    }
    order[dim].assign(splitters.size(), -1);
    const bool has_places = std::any_of(splitters.begin(), splitters.end(),
                                        [&](size_t m) { return places[m].number.has_value(); });
    for (size_t i = 0; i < splitters.size(); ++i) {
      const SplitPlace& place = places[splitters[i]];
      const int64_t number = has_places ? place.number.value_or(-1) : static_cast<int64_t>(i);
      if (number < 0 || number >= static_cast<int64_t>(splitters.size()) ||
          order[dim][static_cast<size_t>(number)] >= 0) {
        const std::string shard = "S" + std::to_string(dim);
        std::string why = "has no place of its own; the " + std::to_string(splitters.size());
        why.append(" that split dim " + std::to_string(dim) + " are ")
            .append(shard + ".0, the outermost, then ");
        cursor.refuse_at(place.column, why.append(shard + ".1 and so on"));
      }
      order[dim][static_cast<size_t>(number)] = static_cast<int64_t>(splitters[i]);
    }
  }
  return order;
}

// What torch calls a dtype, where that is not our name with a longer kind: float32, int8, complex64.
struct DTypeAlias {
  const char* name;
  DType dtype;
};

constexpr DTypeAlias kDTypeAliass[] = {
    {"bool", DType::boolean}, {"half", DType::f16},    {"float", DType::f32}, {"double", DType::f64},
    {"short", DType::i16},    {"int", DType::i32},     {"long", DType::i64},  {"chalf", DType::c32},
    {"cfloat", DType::c64},   {"cdouble", DType::c128}};

// Example: "float8_e5m2" is f8_e5m2, "bfloat16" bf16, "uint8" u8.
std::string short_name(const std::string& name) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"bfloat", "bf"}, {"float", "f"}, {"uint", "u"}, {"int", "i"}, {"complex", "c"}};
  for (const auto& [kind, ours] : kKinds) {
    if (name.starts_with(kind)) return ours + name.substr(kind.size());
  }
  return name;
}

constexpr const char* kHostForms = "hosts and ranks, such as 2x4, or the ranks of each host, such as 4,2,1";

struct Unit {
  const char* name;
  double bytes;
};

constexpr Unit kUnits[] = {{"B", 1},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"KB", 1e3},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0},
                           {"MB", 1e6},
                           {"PiB", 1125899906842624},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"PB", 1e15},
                           {"", 1}};

}  // namespace

Mesh read_mesh(const std::string& text) {
  TextCursor cursor(text);
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  if (std::isdigit(static_cast<unsigned char>(cursor.next())) != 0) {
    shape = read_lengths(cursor, "the ranks along a mesh dim, such as 2x4");
  } else {
    read_named_dims(cursor, shape, names);
  }
  const bool has_ranks = cursor.take('@');
  const std::vector<int64_t> ranks = has_ranks ? read_ranks(cursor) : std::vector<int64_t>{};
  if (!cursor.is_at_end()) cursor.refuse("does not belong to a mesh such as dp=2,tp=4, 2x4 or 2x4@8-15");
  return has_ranks ? Mesh(std::move(shape), ranks, std::move(names))
                   : Mesh(std::move(shape), std::move(names));
}

std::vector<int64_t> read_shape(const std::string& text) {
  if (text == "scalar") return {};
  TextCursor cursor(text);
  std::vector<int64_t> shape =
      read_lengths(cursor, "a length, as in 4096x4096; a tensor without dims is scalar");
  if (!cursor.is_at_end()) cursor.refuse("does not belong to a shape such as 4096x4096");
  return shape;
}

DType read_dtype(const std::string& text) {
  constexpr std::string_view kModule = "torch.";
  const std::string name = text.starts_with(kModule) ? text.substr(kModule.size()) : text;
  for (const DTypeAlias& known : kDTypeAliass) {
    if (name == known.name) return known.dtype;
  }
  try {
    return dtype_from_name(short_name(name));
  } catch (const std::invalid_argument&) {
    const std::string hint =
        did_you_mean(name, {"bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64",
                            "uint8", "bool", "bf16", "f16", "f32", "f64"});
    throw std::invalid_argument("'" + text + "' is not a dtype" + hint +
                                "; it is bf16, f16, f32, f64, i8 to i64, u8 to u64, boolean, c64, c128, " +
                                "f8_e4m3fn, f8_e5m2 and so on, or torch's name for it, such as bfloat16");
  }
}

OrderedPlacements read_placements(const std::string& text, int64_t tensor_dims) {
  TextCursor cursor(text);
  OrderedPlacements read;
  std::vector<SplitPlace> places;
  bool has_places = false;
  const bool is_list = cursor.take('[');
  do {
    cursor.skip_spaces();
    const size_t column = cursor.column();
    read.placements.push_back(read_placement(cursor));
    places.push_back({.column = column});
    if (read.placements.back().is_shard() && cursor.take('.')) {
      places.back().number = cursor.number("the place in the order of splits, as in S0.1,S0.0");
      has_places = true;
    }
  } while (cursor.take(','));
  if (is_list) cursor.need(']', "after the last placement, as in [Shard(0), Replicate()]");
  if (!cursor.is_at_end()) cursor.refuse("is unexpected; placements are separated by commas, as in S0,R");
  for (size_t m = 0; m < places.size(); ++m) {
    if (read.placements[m].is_shard() && read.placements[m].dim >= tensor_dims) {
      cursor.refuse_at(places[m].column, "splits dim " + std::to_string(read.placements[m].dim) + " of a " +
                                             std::to_string(tensor_dims) +
                                             "-d tensor; its dims begin with 0");
    }
  }
  if (has_places) read.order = order_from(cursor, read.placements, places, tensor_dims);
  return read;
}

int64_t read_bytes(const std::string& text) {
  TextCursor cursor(text);
  double value = 0;
  const std::string_view digits = cursor.rest();
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  if (error != std::errc() || value < 0 || !std::isfinite(value)) {
    cursor.refuse("must be a number of bytes, such as 2GiB");
  }
  cursor.skip(static_cast<size_t>(end - digits.data()));
  for (const Unit& unit : kUnits) {
    if (cursor.rest() != unit.name) continue;
    if (value * unit.bytes >= 0x1p62) cursor.refuse_at(1, "is more than 2^62 bytes");
    return static_cast<int64_t>(value * unit.bytes);
  }
  cursor.refuse("is not a unit; it is B, KiB, MiB, GiB, TiB or KB, MB, GB, TB");
}

std::vector<int64_t> read_rank_list(const std::string& text) {
  TextCursor cursor(text);
  std::vector<int64_t> ranks = read_ranks(cursor);
  if (!cursor.is_at_end()) cursor.refuse("does not belong to ranks such as 0-3,8");
  return ranks;
}

int64_t read_count(const std::string& text, const std::string& of_what) {
  TextCursor cursor(text);
  const int64_t count = cursor.number(of_what);
  if (!cursor.is_at_end()) cursor.refuse("does not belong to " + of_what);
  if (count < 1) cursor.refuse_at(1, "must be at least 1");
  return count;
}

std::vector<int64_t> read_hosts(const std::string& text) {
  constexpr int64_t kMostRanks = 1 << 20;
  TextCursor cursor(text);
  std::vector<int64_t> host_of_rank;
  const auto add_host = [&](size_t column, int64_t host, int64_t ranks) {
    if (ranks < 1) cursor.refuse_at(column, "must be at least 1");
    if (ranks > kMostRanks - static_cast<int64_t>(host_of_rank.size()))
      cursor.refuse_at(column, "gives more than " + std::to_string(kMostRanks) + " ranks");
    host_of_rank.insert(host_of_rank.end(), static_cast<size_t>(ranks), host);
  };
  const int64_t first = cursor.number(kHostForms);
  if (cursor.take('x')) {
    if (first < 1) cursor.refuse_at(1, "must be at least 1");
    const size_t column = cursor.column();
    const int64_t ranks = cursor.number(kHostForms);
    for (int64_t host = 0; host < first; ++host) add_host(column, host, ranks);
  } else {
    add_host(1, 0, first);
    for (int64_t host = 1; cursor.take(','); ++host) {
      const size_t column = cursor.column();
      add_host(column, host, cursor.number(kHostForms));
    }
  }
  if (!cursor.is_at_end()) cursor.refuse(std::string("does not belong to ") + kHostForms);
  return host_of_rank;
}

Sweep read_sweep(const std::string& text) {
  TextCursor cursor(text);
  Sweep sweep;
  sweep.dim = cursor.number("the tensor dim to sweep, as in 0=1:65536");
  cursor.need('=', "after the tensor dim, as in 0=1:65536");
  sweep.first = cursor.number("the first length, as in 0=1:65536");
  cursor.need(':', "between the first and the last length, as in 0=1:65536");
  const size_t column = cursor.column();
  sweep.last = cursor.number("the last length, as in 0=1:65536");
  if (!cursor.is_at_end()) cursor.refuse("does not belong to a sweep such as 0=1:65536");
  if (sweep.first < 1) cursor.refuse_at(1, "must begin with a length of at least 1");
  if (sweep.last < sweep.first) cursor.refuse_at(column, "must be at least the first length");
  return sweep;
}

}  // namespace shardway::cli
