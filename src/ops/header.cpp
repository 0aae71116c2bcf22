#include "ops/header.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>

#include "ops/arguments.h"
#include "transport/boxes.h"

namespace shardway {
namespace {

constexpr uint32_t kMagic = 0x31776873;  // "shw1"

// The fixed part of a block. It is followed by two lists of one int64 per rank (sizes, recv_sizes) and by
// the slot, which holds the payload or the text of the problem.
struct Header {
  uint32_t magic = kMagic;
  uint8_t collective = 0;
  uint8_t has_problem = 0;
  uint8_t has_sizes = 0;
  uint8_t has_recv_sizes = 0;
  int8_t dtype = 0;
  int8_t device = 0;
  uint8_t op = 0;
  uint8_t grad = 0;
  uint8_t requires_grad = 0;
  uint8_t dim = 0;
  uint8_t ndim = 0;
  uint8_t reserved = 0;
  int64_t slot_bytes = -1;  // -1: the payload comes in a second round
  int64_t out_size = -1;
  std::array<int64_t, kMaxDims> shape = {};
};
static_assert(sizeof(Header) % 16 == 0);

int64_t block_bytes(int64_t ranks) {
  const int64_t bytes = static_cast<int64_t>(sizeof(Header)) + 16 * ranks + kSlotBytes;
  return (bytes + 63) / 64 * 64;
}

// One rank's block within the rows of all.
class Block {
 public:
  Block(uint8_t* data, int64_t ranks) : data_(data), ranks_(ranks) {}
  Block(const at::Tensor& blocks, int64_t rank)
      : Block(blocks.mutable_data_ptr<uint8_t>() + rank * blocks.size(1), blocks.size(0)) {}

  Header& header() const { return *reinterpret_cast<Header*>(data_); }
  int64_t* sizes() const { return reinterpret_cast<int64_t*>(data_ + sizeof(Header)); }
  int64_t* recv_sizes() const { return sizes() + ranks_; }
  uint8_t* slot() const { return reinterpret_cast<uint8_t*>(recv_sizes() + ranks_); }

 private:
  uint8_t* data_;
  int64_t ranks_;
};

void write_problem(const Block& block, const std::string& problem) {
  Header& header = block.header();
  header.has_problem = 1;
  header.slot_bytes = std::min(static_cast<int64_t>(problem.size()), kSlotBytes);
  std::memcpy(block.slot(), problem.data(), static_cast<size_t>(header.slot_bytes));
}

void write_payload(const Block& block, const at::Tensor& x) {
  const auto bytes = static_cast<int64_t>(x.nbytes());
  if (!x.is_cpu() || bytes > kSlotBytes) return;
  block.header().slot_bytes = bytes;
  if (bytes > 0) std::memcpy(block.slot(), x.contiguous().const_data_ptr(), static_cast<size_t>(bytes));
}

at::Tensor written(const Call& call, const Group& group) {
  at::Tensor bytes = at::empty({block_bytes(group.size())}, at::kByte);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header() = Header{};
  Header& header = block.header();
  header.collective = static_cast<uint8_t>(call.collective);
  if (!call.problem.empty()) {
    write_problem(block, call.problem);
    return bytes;
  }
  header.dtype = static_cast<int8_t>(call.x.scalar_type());
  header.device = static_cast<int8_t>(call.x.device().type());
  header.op = static_cast<uint8_t>(call.op);
  header.grad = static_cast<uint8_t>(call.grad);
  header.requires_grad = call.requires_grad();
  header.dim = static_cast<uint8_t>(call.dim);
  header.ndim = static_cast<uint8_t>(call.x.dim());
  header.out_size = call.out_size;
  std::copy(call.x.sizes().begin(), call.x.sizes().end(), header.shape.begin());
  header.has_sizes = !call.sizes.empty();
  header.has_recv_sizes = !call.recv_sizes.empty();
  std::copy(call.sizes.begin(), call.sizes.end(), block.sizes());
  std::copy(call.recv_sizes.begin(), call.recv_sizes.end(), block.recv_sizes());
  if (call.collective != Collective::gather_sizes) write_payload(block, call.x);
  return bytes;
}

std::string list_text(const int64_t* values, int64_t count) {
  std::ostringstream text;
  text << '(';
  for (int64_t i = 0; i < count; ++i) text << (i == 0 ? "" : ", ") << values[i];
  text << ')';
  return text.str();
}

// The shape with a star where the ranks may differ.
std::string shape_text(const Header& header) {
  std::ostringstream text;
  text << '(';
  for (int d = 0; d < header.ndim; ++d) {
    text << (d == 0 ? "" : ", ");
    if (d == header.dim && header.collective != static_cast<uint8_t>(Collective::reduce_scatter_v)) {
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
      {"op", [](const Block& b) { return std::string(name_of(static_cast<Op>(b.header().op))); }},
      {"grad", [](const Block& b) { return grad_name(b.header().grad); }},
  };
  return all;
}

// What the points look at, as bytes: equal bytes mean equal texts, and save making them.
bool same_points(const Header& a, const Header& b) {
  if (a.dtype != b.dtype || a.device != b.device || a.ndim != b.ndim || a.dim != b.dim || a.op != b.op ||
      a.grad != b.grad) {
    return false;
  }
  for (int d = 0; d < a.ndim; ++d) {
    const bool is_free = d == a.dim && a.collective != static_cast<uint8_t>(Collective::reduce_scatter_v);
    if (!is_free && a.shape[static_cast<size_t>(d)] != b.shape[static_cast<size_t>(d)]) return false;
  }
  return true;
}

[[noreturn]] void disagree(Collective collective, const std::string& what, const std::string& first,
                           const std::string& other, int64_t rank) {
  TORCH_CHECK_VALUE(false, name_of(collective), ": ranks disagree on ", what, ": ", first, " on rank 0, ",
                    other, " on rank ", rank);
  std::abort();  // not reached: the line above throws
}

void compare_with_first(const at::Tensor& blocks, int64_t rank) {
  const Block first(blocks, 0);
  const Block other(blocks, rank);
  const int64_t ranks = blocks.size(0);
  const auto collective = static_cast<Collective>(first.header().collective);
  if (!same_points(first.header(), other.header())) {
    for (const Point& point : points()) {
      if (point.text(first) != point.text(other))
        disagree(collective, point.name, point.text(first), point.text(other), rank);
    }
  }
  const bool lists_are_shared = collective != Collective::all_to_all_v;
  if (!lists_are_shared) return;
  const bool both_gave = first.header().has_sizes != 0 && other.header().has_sizes != 0;
  if (both_gave && !std::equal(first.sizes(), first.sizes() + ranks, other.sizes())) {
    disagree(collective, "sizes", list_text(first.sizes(), ranks), list_text(other.sizes(), ranks), rank);
  }
}

// Of all_to_all_v: what rank `to` expects of rank `from` is what `from` sends it.
void compare_sent_with_expected(const at::Tensor& blocks) {
  for (int64_t to = 0; to < blocks.size(0); ++to) {
    const Block receiver(blocks, to);
    if (receiver.header().has_recv_sizes == 0) continue;
    for (int64_t from = 0; from < blocks.size(0); ++from) {
      const int64_t sent = Block(blocks, from).sizes()[to];
      const int64_t expected = receiver.recv_sizes()[from];
      TORCH_CHECK_VALUE(sent == expected, "all_to_all_v: ranks disagree on recv_sizes: rank ", from,
                        " sends ", sent, " to rank ", to, ", which expects ", expected);
    }
  }
}

// A rank of another version, or of another library, has another first word.
void check_collectives(const at::Tensor& blocks) {
  const auto of = [&](int64_t rank) {
    return static_cast<Collective>(Block(blocks, rank).header().collective);
  };
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    TORCH_CHECK_VALUE(Block(blocks, rank).header().magic == kMagic, "rank ", rank,
                      " sent no header: it made another call, or runs another version of shardway");
    TORCH_CHECK_VALUE(of(rank) == of(0), "ranks called different collectives: ", name_of(of(0)),
                      " on rank 0, ", name_of(of(rank)), " on rank ", rank);
  }
}

void check_problems(const at::Tensor& blocks) {
  for (int64_t rank = 0; rank < blocks.size(0); ++rank) {
    const Block block(blocks, rank);
    const Header& header = block.header();
    if (header.has_problem == 0) continue;
    const std::string text(reinterpret_cast<const char*>(block.slot()),
                           static_cast<size_t>(header.slot_bytes));
    raise(name_of(static_cast<Collective>(header.collective)), text, rank);
  }
}

}  // namespace

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather_sizes"};
  return kNames.at(static_cast<size_t>(collective));
}

bool Call::requires_grad() const { return x.requires_grad() && at::GradMode::is_enabled(); }

bool checks_every_call() {
  const char* value = std::getenv("SHARDWAY_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

Agreement agree(const Call& call, const Group& group) {
  at::Tensor blocks = group.transport().all_gather_block(written(call, group));
  check_collectives(blocks);
  check_problems(blocks);
  if (call.collective != Collective::gather_sizes) {
    for (int64_t rank = 1; rank < group.size(); ++rank) compare_with_first(blocks, rank);
  }
  if (call.collective == Collective::all_to_all_v) compare_sent_with_expected(blocks);
  return {call, group, std::move(blocks)};
}

void fail_together(Collective collective, const std::string& problem, const Group& group, bool sizes_known) {
  if (group.distributed() && (!sizes_known || checks_every_call()))
    agree({.collective = collective, .problem = problem}, group);
  raise(name_of(collective), problem, group.rank());
}

Agreement::Agreement(const Call& call, const Group& group, at::Tensor blocks)
    : call_(call), group_(group), blocks_(std::move(blocks)) {}

int64_t Agreement::size_along_dim(int64_t rank) const {
  const Header& header = Block(blocks_, rank).header();
  return header.shape[header.dim];
}

int64_t Agreement::out_size(int64_t rank) const { return Block(blocks_, rank).header().out_size; }

Sizes Agreement::send_sizes(int64_t rank) const {
  const int64_t* sizes = Block(blocks_, rank).sizes();
  return {sizes, sizes + group_.size()};
}

bool Agreement::any_requires_grad() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (Block(blocks_, rank).header().requires_grad != 0) return true;
  }
  return false;
}

KnownInputs Agreement::known_inputs() const {
  KnownInputs inputs(static_cast<size_t>(group_.size()));
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const Block block(blocks_, rank);
    const Header& header = block.header();
    if (header.slot_bytes < 0) continue;
    const std::vector<int64_t> shape(header.shape.begin(), header.shape.begin() + header.ndim);
    inputs[static_cast<size_t>(rank)] = at::from_blob(
        block.slot(), shape, [owner = blocks_](void*) {}, call_.x.options().requires_grad(false));
  }
  return inputs;
}

}  // namespace shardway
