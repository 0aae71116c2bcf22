#include "shm/calls/said.h"

#include <algorithm>
#include <optional>
#include <string>

#include "shm/memory/memory_file.h"

namespace shardway::shm {
namespace {

// The sum of a peer's number and one that was checked; nothing if it overflows.
std::optional<int64_t> sum_of(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

const std::byte* in_payloads(const Sight& sight, int64_t base, int64_t begin, int64_t bytes) {
  const auto offset = sum_of(base, begin);
  return offset && sight.payloads.holds_payload(*offset, bytes) ? sight.payloads.payload(*offset) : nullptr;
}

const std::byte* in_arena(const Sight& sight, const Header& header, int64_t begin) {
  const bool is_there = lies_within(static_cast<int64_t>(sight.arena.size()), header.base, header.span_bytes);
  return is_there ? sight.arena.data() + header.base + begin : nullptr;
}

const std::byte* in_page(const Sight& sight, int64_t base, int64_t begin, int64_t bytes) {
  const auto offset = sum_of(base, begin);
  return offset && lies_within(kInsideBytes, *offset, bytes) ? sight.board.inside(sight.number) + *offset
                                                             : nullptr;
}

// The peer's bytes [begin, end) of its input, which are part of what its header says.
const std::byte* in_place(const Sight& sight, const Header& header, int64_t begin, int64_t end) {
  switch (header.path) {
    case Path::inside:
      return in_page(sight, header.base, begin, end - begin);
    case Path::packed:
      return in_payloads(sight, header.base, begin, end - begin);
    case Path::arena:
      return in_arena(sight, header, begin);
    default:
      return nullptr;
  }
}

// Bytes from the first element of the peer's input to the first of the box.
int64_t begin_of(const Sight& sight, const Said& said, const Pull& pull, int64_t index) {
  const bool is_known =
      std::none_of(pull.from.begin(), pull.from.end(), [](int64_t o) { return o == kUnknown; });
  if (said.header.is_listed != 0) {
    if (index >= said.end - said.first) refuse_header(pull.peer, "sends fewer boxes than are expected of it");
    const Lists lists = sight.board.lists(sight.number, said.header.dims);
    const Listed listed = copied(lists.listed()[said.first + index]);
    if (listed.volume != volume(pull.extent))
      refuse_header(pull.peer, "sends " + std::to_string(listed.volume) + " elements where " +
                                   std::to_string(volume(pull.extent)) + " are expected");
    if (!is_known) return listed.offset_bytes;
  }
  int64_t begin = 0;
  for (size_t d = 0; d < pull.from.size(); ++d) {
    int64_t step = 0;
    if (pull.from[d] < 0 || said.shape[d] < pull.extent[d] || pull.from[d] > said.shape[d] - pull.extent[d])
      refuse_header(pull.peer, "has no such box in its input");
    if (__builtin_mul_overflow(pull.from[d], said.strides[d], &step) ||
        __builtin_add_overflow(begin, step, &begin))
      refuse_header(pull.peer, "has invalid strides");
  }
  return begin;
}

// Bytes from the first element of the peer's input to the end of the box that begins at `begin`.
int64_t end_of(const Said& said, const Pull& pull, int64_t begin, int64_t element_bytes) {
  int64_t end = begin;
  for (size_t d = 0; d < pull.extent.size(); ++d) {
    int64_t length = 0;
    if (said.strides[d] < 0 || __builtin_mul_overflow(pull.extent[d] - 1, said.strides[d], &length) ||
        __builtin_add_overflow(end, length, &end))
      refuse_header(pull.peer, "has invalid strides");
  }
  if (__builtin_add_overflow(end, element_bytes, &end)) refuse_header(pull.peer, "has invalid strides");
  return end;
}

// The peer's pushes to this rank, among those that its header lists.
void find_listed(const Sight& sight, Said& said) {
  const Lists lists = sight.board.lists(sight.number, said.header.dims);
  said.first = copied(lists.first()[sight.reader]);
  said.end = copied(lists.first()[sight.reader + 1]);
  if (said.first < 0 || said.first > said.end || said.end > kMaxListed)
    refuse_header(sight.peer, "has an invalid header");
}

}  // namespace

void refuse_header(int64_t peer, const std::string& why) {
  throw BadHeader("rank " + std::to_string(peer) + " " + why);
}

Header hear_header(const Sight& sight) {
  const Header header = copied(sight.board.header(sight.number));
  if (header.number != sight.number) refuse_header(sight.peer, "is in another collective");
  return header;
}

Header hear_list(const Sight& sight, size_t parts) {
  const Header header = hear_header(sight);
  const auto bytes = static_cast<int64_t>(parts * sizeof(PartRecord));
  if (header.dims != kListOfParts || header.path != Path::packed || header.span_bytes != bytes ||
      in_payloads(sight, header.base, 0, bytes) == nullptr)
    refuse_header(sight.peer, "has no list of " + std::to_string(parts) + " tensors");
  return header;
}

Said hear_part(const Sight& sight, const Header& header, size_t index) {
  PartRecord record;
  const auto begin = static_cast<int64_t>(index * sizeof(PartRecord));
  copy_now(&record, sight.payloads.payload(header.base + begin), sizeof(record));
  if (record.dims > kMaxDims || record.path > Path::staged || record.path == Path::packed)
    refuse_header(sight.peer, "has an invalid header");
  Said said{.header = header};
  said.header.dims = 0;  // no shape and strides lie in front of the list of pushes
  said.header.is_listed = record.is_listed;
  if (record.is_listed != 0) find_listed(sight, said);
  said.header.path = record.path;
  said.header.element_bytes = record.element_bytes;
  said.header.base = record.base;
  said.header.span_bytes = record.span_bytes;
  said.shape = FixedDims::zeros(record.dims);
  said.strides = said.shape;
  for (size_t d = 0; d < record.dims; ++d) {
    said.shape[d] = record.axes[d].length;
    said.strides[d] = record.axes[d].stride_bytes;
  }
  if (record.path == Path::arena && in_arena(sight, said.header, 0) == nullptr)
    refuse_header(sight.peer, "has its input outside its memory");
  return said;
}

Said hear(const Sight& sight) {
  Said said;
  said.header = hear_header(sight);
  const Header& header = said.header;
  const bool is_inside = header.path == Path::inside;
  const bool is_one_run = header.dims == 1 && header.is_listed == 0 && header.element_bytes > 0;
  const bool is_all_reduce = header.dims == 0;  // of which the ranks' notes tell, and no box can be taken
  if (header.dims > kMaxDims || header.path > Path::inside || (is_inside && !is_one_run && !is_all_reduce))
    refuse_header(sight.peer, "has an invalid header");
  if (is_inside && is_all_reduce) return said;
  if (is_inside) {
    said.shape = one_dim(header.span_bytes / header.element_bytes);
    said.strides = one_dim(header.element_bytes);
    return said;
  }
  const Lists lists = sight.board.lists(sight.number, header.dims);
  said.shape = FixedDims(std::span<const int64_t>(lists.shape(), header.dims));
  said.strides = FixedDims(std::span<const int64_t>(lists.strides(), header.dims));
  if (header.is_listed != 0) find_listed(sight, said);
  if (header.path == Path::arena && in_arena(sight, header, 0) == nullptr)
    refuse_header(sight.peer, "has its input outside its memory");
  return said;
}

void check_shape(const Said& said, int64_t peer, const FixedDims& shape) {
  if (!(said.shape == shape)) refuse_header(peer, "has an input of another shape");
}

Source locate(const Sight& sight, const Said& said, const Pull& pull, int64_t index, int64_t element_bytes) {
  const Header& header = said.header;
  if (header.path == Path::none) refuse_header(pull.peer, "sends nothing where a box is expected of it");
  if (header.element_bytes != element_bytes || said.shape.size() != pull.extent.size())
    refuse_header(pull.peer, "has elements or dims of another kind");
  const int64_t begin = begin_of(sight, said, pull, index);
  if (header.path == Path::staged) return {};
  const int64_t end = end_of(said, pull, begin, element_bytes);
  if (begin < 0 || end > header.span_bytes) refuse_header(pull.peer, "has no such box in its memory");
  const std::byte* data = in_place(sight, header, begin, end);
  if (data == nullptr) refuse_header(pull.peer, "has its input outside its memory");
  return {.data = data, .strides = said.strides};
}

// There is no list: the run must be all of the input, or the inputs of all ranks are of one size.
const std::byte* find_run_inside(const Sight& sight, const Header& header, const Run& run) {
  const int64_t begin = run.from == kUnknown ? 0 : run.from;
  const int64_t expected = run.input_bytes == kUnknown ? run.bytes : run.input_bytes;
  if (header.number != sight.number || header.dims != 1 || header.element_bytes != run.element_bytes ||
      header.span_bytes != expected || !lies_within(expected, begin, run.bytes))
    return nullptr;
  return in_page(sight, header.base, begin, run.bytes);
}

const std::byte* find_run(const Sight& sight, const Header& header, const Run& run) {
  if (header.path == Path::inside) return find_run_inside(sight, header, run);
  const Lists lists = sight.board.lists(sight.number, 1);
  const int64_t first = copied(lists.first()[sight.reader]);
  if (header.number != sight.number || header.dims != 1 || header.is_listed == 0 || first < 0 ||
      first >= kMaxListed || header.element_bytes != run.element_bytes)
    return nullptr;
  const Listed listed = copied(lists.listed()[first]);
  const int64_t begin = run.from == kUnknown ? listed.offset_bytes : run.from;
  if (listed.volume != run.bytes / run.element_bytes || copied(*lists.strides()) != run.element_bytes ||
      !lies_within(header.span_bytes, begin, run.bytes))
    return nullptr;
  if (run.input_bytes != kUnknown && header.span_bytes != run.input_bytes) return nullptr;
  return in_place(sight, header, begin, begin + run.bytes);
}

const std::byte* find_input(const Sight& sight, const Header& header) {
  if (header.path == Path::staged) return nullptr;
  const std::byte* found = in_place(sight, header, 0, header.span_bytes);
  if (found == nullptr) refuse_header(sight.peer, "has an invalid header");
  return found;
}

std::span<const std::byte> find_note(const Sight& sight, const Header& header, int64_t most_bytes) {
  const int64_t bytes = header.note.bytes;
  const std::byte* note = bytes > most_bytes ? nullptr : in_payloads(sight, header.note.base, 0, bytes);
  if (note == nullptr) refuse_header(sight.peer, "sends a note of " + std::to_string(bytes) + " bytes");
  return {note, static_cast<size_t>(bytes)};
}

}  // namespace shardway::shm
