#include "transport/ipc/places.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <type_traits>

namespace shardway {
namespace {

constexpr int64_t kMostDims = 64;  // that a tensor of torch has
constexpr int64_t kMostPushes = 4096;
constexpr int64_t kMostPlaces = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 48;  // so that offsets do not overflow

class NoteWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void put(const std::vector<int64_t>& numbers) {
    put(static_cast<int64_t>(numbers.size()));
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    bytes_.insert(bytes_.end(), bytes, bytes + numbers.size() * sizeof(int64_t));
  }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class NoteReader {
 public:
  NoteReader(std::span<const std::byte> bytes, int64_t rank) : bytes_(bytes), rank_(rank) {}

  template <class T>
  T take() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::vector<int64_t> take_numbers(int64_t most) {
    const auto count = take<int64_t>();
    check(count >= 0 && count <= most);
    const size_t bytes = static_cast<size_t>(count) * sizeof(int64_t);
    need(bytes);
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    if (count > 0) std::memcpy(numbers.data(), bytes_.data(), bytes);
    bytes_ = bytes_.subspan(bytes);
    return numbers;
  }
  std::string take_text() {
    const auto count = take<int64_t>();
    check(count >= 0);
    need(static_cast<size_t>(count));
    std::string text(reinterpret_cast<const char*>(bytes_.data()), static_cast<size_t>(count));
    bytes_ = bytes_.subspan(static_cast<size_t>(count));
    return text;
  }
  void check(bool is_valid) const {
    TORCH_CHECK_WITH(DistBackendError, is_valid, "rank ", rank_, " told an invalid place of its tensor");
  }

 private:
  void need(size_t bytes) const { check(bytes <= bytes_.size()); }

  std::span<const std::byte> bytes_;
  int64_t rank_;
};

int64_t elements_of(const Moves& moves, int64_t peer) {
  int64_t elements = 0;
  for (const Move& move : moves) elements += move.peer == peer ? move.mine.volume() : 0;
  return elements;
}

}  // namespace

InputPlace place_of(const Route& route, const at::Tensor& x) {
  InputPlace place{.dtype = static_cast<int64_t>(x.scalar_type()),
                   .element_bytes = x.element_size(),
                   .shape = x.sizes().vec(),
                   .strides = x.strides().vec()};
  for (int64_t& stride : place.strides) stride *= x.element_size();
  for (int64_t rank = 0; rank < route.size; ++rank) {
    place.pushed.push_back(elements_of(route.pushes, rank));
    place.pulled.push_back(elements_of(route.pulls, rank));
  }
  if (route.pattern != Pattern::all_to_all) return place;
  for (const Move& push : route.pushes)
    place.pushes.push_back({.peer = push.peer, .offset = {push.mine.offset.begin(), push.mine.offset.end()}});
  return place;
}

namespace {

void write(NoteWriter& note, const InputPlace& place) {
  note.put(static_cast<int64_t>(place.problem.size()));
  for (const char c : place.problem) note.put(c);
  note.put(place.gpu);
  note.put(place.freed);
  note.put(place.allocation.number);
  note.put(place.allocation.handle);
  note.put(place.allocation.bytes);
  note.put(place.offset);
  note.put(place.dtype);
  note.put(place.element_bytes);
  note.put(place.shape);
  note.put(place.strides);
  note.put(place.pushed);
  note.put(place.pulled);
  note.put(static_cast<int64_t>(place.pushes.size()));
  for (const ToldPush& push : place.pushes) {
    note.put(push.peer);
    note.put(push.offset);
  }
}

InputPlace read(NoteReader& note, int64_t ranks) {
  InputPlace place{.problem = note.take_text()};
  place.gpu = note.take<cuda::Uuid>();
  place.freed = note.take<uint64_t>();
  place.allocation.number = note.take<uint64_t>();
  place.allocation.handle = note.take<cuda::IpcHandle>();
  place.allocation.bytes = note.take<int64_t>();
  place.offset = note.take<int64_t>();
  place.dtype = note.take<int64_t>();
  place.element_bytes = note.take<int64_t>();
  place.shape = note.take_numbers(kMostDims);
  place.strides = note.take_numbers(kMostDims);
  place.pushed = note.take_numbers(ranks);
  place.pulled = note.take_numbers(ranks);
  const auto pushes = note.take<int64_t>();
  note.check(pushes >= 0 && pushes <= kMostPushes);
  for (int64_t i = 0; i < pushes; ++i) {
    ToldPush push{.peer = note.take<int64_t>()};
    push.offset = note.take_numbers(kMostDims);
    note.check(push.offset.size() == place.shape.size());
    place.pushes.push_back(std::move(push));
  }
  const bool counts_all =
      static_cast<int64_t>(place.pushed.size()) == ranks && place.pulled.size() == place.pushed.size();
  note.check(!place.problem.empty() || (counts_all && place.strides.size() == place.shape.size()));
  return place;
}

// Of one route: `places` has one of each rank.
std::string disagreement_on(const InputPlaces& places) {
  const InputPlace& first = places[0];
  for (size_t rank = 1; rank < places.size(); ++rank) {
    const InputPlace& other = places[rank];
    if (!(other.gpu == first.gpu))
      return c10::str("the ranks do not share a GPU: rank 0 has its tensor on ", cuda::text_of(first.gpu),
                      ", rank ", rank, " on ", cuda::text_of(other.gpu), "; between GPUs use NCCL");
    if (other.dtype != first.dtype || other.element_bytes != first.element_bytes)
      return c10::str("the ranks disagree on the dtype: rank 0 has ",
                      static_cast<c10::ScalarType>(first.dtype), ", rank ", rank, " has ",
                      static_cast<c10::ScalarType>(other.dtype));
  }
  for (size_t from = 0; from < places.size(); ++from) {
    for (size_t to = 0; to < places.size(); ++to) {
      const int64_t sent = places[from].pushed[to];
      const int64_t taken = places[to].pulled[from];
      if (sent != taken)
        return c10::str("the ranks disagree on the sizes: rank ", from, " sends ", sent, " elements to rank ",
                        to, ", which expects ", taken);
    }
  }
  return {};
}

}  // namespace

std::vector<std::byte> written(const InputPlaces& places) {
  NoteWriter note;
  note.reserve(512 * places.size());
  note.put(static_cast<int64_t>(places.size()));
  for (const InputPlace& place : places) write(note, place);
  return note.take();
}

InputPlaces read_places(std::span<const std::byte> bytes, int64_t ranks, int64_t rank) {
  NoteReader note(bytes, rank);
  const auto count = note.take<int64_t>();
  note.check(count > 0 && count <= kMostPlaces);
  InputPlaces places;
  for (int64_t i = 0; i < count; ++i) places.push_back(read(note, ranks));
  return places;
}

std::string disagreement_of(const std::vector<InputPlaces>& of_ranks) {
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const InputPlace& place : of_ranks[rank]) {
      if (!place.problem.empty()) return c10::str(place.problem, " (rank ", rank, ")");
    }
  }
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank].size() != of_ranks[0].size())
      return c10::str("the ranks disagree on the tensors: rank 0 moves ", of_ranks[0].size(), ", rank ", rank,
                      " moves ", of_ranks[rank].size());
  }
  for (size_t route = 0; route < of_ranks[0].size(); ++route) {
    InputPlaces places;
    for (const InputPlaces& told : of_ranks) places.push_back(told[route]);
    if (std::string why = disagreement_on(places); !why.empty()) return why;
  }
  return {};
}

int64_t offset_of(const Move& pull, const InputPlace& peer, int64_t rank, int64_t nth) {
  const auto check = [&](bool is_inside) {
    TORCH_CHECK_WITH(DistBackendError, is_inside, "rank ", pull.peer,
                     " told a tensor that does not hold what is taken from it (rank ", rank, ")");
  };
  check(pull.theirs.offset.size() == peer.shape.size());
  check(peer.allocation.bytes <= kMostBytes && peer.offset >= 0 && peer.offset <= peer.allocation.bytes);
  const ToldPush* told = nullptr;
  for (const ToldPush& push : peer.pushes) {
    if (push.peer == rank && nth-- == 0) told = &push;
  }
  int64_t offset = peer.offset;
  int64_t last = peer.offset + peer.element_bytes;  // behind the last element
  for (size_t d = 0; d < peer.shape.size(); ++d) {
    const bool is_unknown = pull.theirs.offset[d] == kUnknownOffset;
    check(!is_unknown || told != nullptr);
    const int64_t begin = is_unknown ? told->offset[d] : pull.theirs.offset[d];
    const int64_t extent = pull.mine.extent[d];
    check(begin >= 0 && extent > 0 && begin <= peer.shape[d] - extent && peer.strides[d] >= 0 &&
          (peer.strides[d] == 0 || peer.shape[d] - 1 <= peer.allocation.bytes / peer.strides[d]));
    offset += begin * peer.strides[d];
    last += (begin + extent - 1) * peer.strides[d];
  }
  check(last <= peer.allocation.bytes);
  return offset;
}

}  // namespace shardway
