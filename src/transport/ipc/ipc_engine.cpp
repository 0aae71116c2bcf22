#include "transport/ipc/ipc_engine.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "shm/board/thresholds.h"
#include "transport/ipc/native_stream.h"

namespace shardway {
namespace {

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr size_t kEditions = 2;    // a sender may alternate between two sets of tensors

// Of one meeting, whose notes are bounded.
int64_t most_routes(int64_t ranks) { return std::max<int64_t>(1, shm::kNoteBytes / (512 + 96 * ranks)); }

bool is_captured(cuda::Stream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  int status = 0;
  driver.check(driver.functions().cuStreamIsCapturing(stream, &status), "look at a stream");
  return status != 0;
}

// Where peers' inputs lie would be what it was in the capture, in every replay.
void refuse_capture(cuda::Stream stream) {
  if (is_captured(stream))
    throw cuda::DriverError(
        "a call between processes cannot be captured in a CUDA graph, unless it was prepared and fixed "
        "(PreparedCall.fix)");
}

// Runs what this rank does after the meeting, while the others count on it: an error ends the group for all.
template <class Body>
void or_end(shm::SharedGroup& group, Body&& body) {
  try {
    body();
  } catch (const cuda::DriverError& error) {
    group.abort();
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", group.rank(), ")");
  } catch (...) {
    group.abort();
    throw;
  }
}

// The addresses that tables hold of a route.
struct RouteEnds {
  const void* x = nullptr;
  const void* out = nullptr;

  bool operator==(const RouteEnds&) const = default;
};

RouteEnds ends_of(const RouteCall& call) { return {call.x.const_data_ptr(), call.out.const_data_ptr()}; }

bool moves_any(const InputPlaces& places, std::vector<int64_t> InputPlace::*counts, int64_t peer) {
  return std::any_of(places.begin(), places.end(),
                     [&](const InputPlace& place) { return (place.*counts)[static_cast<size_t>(peer)] > 0; });
}

}  // namespace

// What follows from where the tensors of all ranks lay at one time.
struct IpcEngine::Edition {
  uint64_t number = 0;  // the same on every rank; 0: none
  std::vector<RouteEnds> ends = {};
  InputPlaces mine = {};
  std::vector<int64_t> owners = {};  // the ranks from which this one takes
  std::vector<int64_t> takers = {};  // those that take from it
  std::vector<Batch> batches = {};
};

struct IpcEngine::Kept {
  std::vector<RouteCall> calls = {};
  std::vector<Taking> takings = {};
  std::array<Edition, kEditions> editions = {};  // the last ones
  size_t next = 0;                               // to be overwritten
  const Edition* fixed = nullptr;                // holds for good
};

IpcEngine::IpcEngine(std::shared_ptr<ShmEngine> memory)
    : memory_(std::move(memory)),
      rank_(memory_->group().rank()),
      size_(memory_->group().size()),
      imports_(static_cast<size_t>(size_)) {}

IpcEngine::~IpcEngine() {
  if (!home_.is_this()) {  // a child of fork has neither the thread nor the driver
    static_cast<void>(watchdog_.release());
    static_cast<void>(flags_.release());
    return;
  }
  if (last_device_ == nullptr) return;
  try {
    const cuda::CurrentDevice current(last_device_->device);
    const cuda::DriverFunctions& cu = cuda::Driver::instance().functions();
    cu.cuEventSynchronize(last_);
    cu.cuEventDestroy(last_);
    for (cuda::Imports& imports : imports_) imports.close_all();
    watchdog_.reset();
    flags_.reset();
  } catch (const cuda::DriverError&) {  // the process is ending, and the driver has ended before
  }
}

IpcEngine::OnDevice& IpcEngine::on(c10::Device device) {
  std::unique_ptr<OnDevice>& found = devices_[device.index()];
  if (!found) found = std::make_unique<OnDevice>(device.index());
  return *found;
}

void IpcEngine::open_flags() {
  if (watchdog_) return;
  const cuda::Driver& driver = cuda::Driver::instance();
  if (!flags_) flags_ = std::make_unique<cuda::Flags>(memory_->group().stream_words(), size_);
  if (last_ == nullptr) driver.check(driver.functions().cuEventCreate(&last_, kNoTiming), "make an event");
  watchdog_ = std::make_unique<Watchdog>(memory_->group(), *flags_);
}

// Adds where the input lies. Throws DriverError if it cannot be shared.
void IpcEngine::show(InputPlace& place, const at::Tensor& x) {
  if (x.numel() == 0) return;
  const cuda::Exports::Shown at =
      exports_.place_of(reinterpret_cast<cuda::DeviceAddress>(x.const_data_ptr()));
  place.allocation = at.allocation;
  place.offset = at.offset;
}

// What this rank tells the others; if it cannot take part, why.
InputPlaces IpcEngine::places_of(std::span<const RouteCall> calls, cuda::Stream stream) {
  InputPlaces places;
  for (const RouteCall& call : calls) places.push_back(place_of(*call.route, call.x));
  try {
    OnDevice& here = on(calls[0].x.device());
    const cuda::CurrentDevice current(here.device);
    refuse_capture(stream);
    open_flags();
    places[0].freed = exports_.next_freed();
    for (size_t i = 0; i < calls.size(); ++i) {
      places[i].gpu = here.device.uuid();
      if (calls[i].x.device() != calls[0].x.device())
        throw cuda::DriverError("the tensors of one call are on several GPUs");
      show(places[i], calls[i].x);
    }
  } catch (const cuda::DriverError& error) {
    places[0].problem = error.what();
  }
  return places;
}

std::vector<InputPlaces> IpcEngine::exchanged(const InputPlaces& mine, const Subject& subject,
                                              shm::SharedGroup& group) {
  std::vector<std::byte> note = written(mine);
  if (static_cast<int64_t>(note.size()) > shm::kNoteBytes) {
    InputPlace problem;
    problem.problem = "a tensor of too many dims, or too many moves, to be told to the other ranks";
    note = written({problem});
  }
  const auto row_bytes = static_cast<size_t>(shm::kNoteBytes);
  rows_.resize(row_bytes * static_cast<size_t>(size_));
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  group.gather_notes(
      {.note = note, .rows = rows_.data(), .row_bytes = shm::kNoteBytes, .lengths = lengths.data()}, subject);
  std::vector<InputPlaces> of_ranks;
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    const std::span row(rows_.data() + rank * row_bytes, static_cast<size_t>(lengths[rank]));
    of_ranks.push_back(read_places(row, size_, static_cast<int64_t>(rank)));
  }
  return of_ranks;
}

void IpcEngine::forget_freed(const std::vector<InputPlaces>& of_ranks) {
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank][0].freed != 0) imports_[rank].close(of_ranks[rank][0].freed);
  }
}

Taking::Sources IpcEngine::sources_of(const RouteCall& call, const std::vector<InputPlaces>& of_ranks,
                                      size_t number) {
  const Moves& pulls = call.route->pulls;
  Taking::Sources sources;
  int64_t nth = 0;  // of the pulls from one peer
  for (size_t i = 0; i < pulls.size(); ++i) {
    const Move& pull = pulls[i];
    const auto peer = static_cast<size_t>(pull.peer);
    const InputPlace& place = of_ranks[peer][number];
    nth = i > 0 && pulls[i - 1].peer == pull.peer ? nth + 1 : 0;
    cuda::StridedBox& source = sources.emplace_back(cuda::StridedBox{.strides = place.strides});
    if (pull.mine.volume() == 0) continue;
    const int64_t offset = offset_of(pull, place, rank_, nth);
    const cuda::DeviceAddress base = pull.peer == rank_
                                         ? reinterpret_cast<cuda::DeviceAddress>(call.x.const_data_ptr()) -
                                               static_cast<cuda::DeviceAddress>(place.offset)
                                         : imports_[peer].open(place.allocation, pull.peer);
    source.address = base + static_cast<cuda::DeviceAddress>(offset);
  }
  return sources;
}

// Routes that combine alike are one kernel's work.
void IpcEngine::add(std::vector<Batch>& batches, const std::optional<shm::Combine>& how,
                    std::vector<cuda::BoxMove> moves) {
  const auto is_alike = [&](const Batch& batch) {
    if (!how || !batch.how) return how.has_value() == batch.how.has_value();
    return batch.how->element == how->element && batch.how->op == how->op &&
           batch.how->divisor == how->divisor;
  };
  auto batch = std::find_if(batches.begin(), batches.end(), is_alike);
  if (batch == batches.end()) batch = batches.insert(batch, Batch{.how = how});
  std::move(moves.begin(), moves.end(), std::back_inserter(batch->moves));
}

void IpcEngine::queue(const Edition& edition, OnDevice& here, cuda::Stream stream) {
  const cuda::CurrentDevice current(here.device);
  is_captured(stream) ? queue_for_replays(edition, here, stream) : queue_counted(edition, here, stream);
}

void IpcEngine::queue_counted(const Edition& edition, OnDevice& here, cuda::Stream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  if (calls_ > 0 && stream != last_stream_)  // flags are written in the order of the calls
    driver.check(driver.functions().cuStreamWaitEvent(stream, last_, 0), "order two streams");
  watchdog_->expect(++calls_);
  std::vector<cuda::MemoryOp> before = {flags_->write_ready(rank_, calls_)};
  for (const int64_t owner : edition.owners) before.push_back(flags_->wait_ready(owner, calls_));
  std::vector<cuda::MemoryOp> after = {flags_->write_done(rank_, calls_)};
  for (const int64_t taker : edition.takers) after.push_back(flags_->wait_done(taker, calls_));
  queue_between(before, edition, after, here, stream);
  driver.check(driver.functions().cuEventRecord(last_, stream), "record an event");
  last_stream_ = stream;
  last_device_ = &here;
}

void IpcEngine::queue_between(std::vector<cuda::MemoryOp>& before, const Edition& edition,
                              std::vector<cuda::MemoryOp>& after, OnDevice& here, cuda::Stream stream) {
  cuda::queue(before, stream);
  for (const Batch& batch : edition.batches) here.kernels.launch(batch.tables, batch.how, stream);
  cuda::queue(after, stream);
}

// An owner raises its word again only after the taker has raised its own, and the taker has lowered the
// owner's word before that. So no word is raised twice before it is lowered.
void IpcEngine::queue_for_replays(const Edition& edition, OnDevice& here, cuda::Stream stream) {
  using Signal = cuda::Flags::Signal;
  std::vector<cuda::MemoryOp> before;
  std::vector<cuda::MemoryOp> after;
  for (const int64_t taker : edition.takers)
    before.push_back(flags_->raise(Signal::input_is_ready, {.owner = rank_, .taker = taker}));
  for (const int64_t owner : edition.owners) {
    const cuda::Flags::Pair pair{.owner = owner, .taker = rank_};
    before.push_back(flags_->await(Signal::input_is_ready, pair));
    before.push_back(flags_->lower(Signal::input_is_ready, pair));
    after.push_back(flags_->raise(Signal::input_is_read, pair));
  }
  for (const int64_t taker : edition.takers) {
    const cuda::Flags::Pair pair{.owner = rank_, .taker = taker};
    after.push_back(flags_->await(Signal::input_is_read, pair));
    after.push_back(flags_->lower(Signal::input_is_read, pair));
  }
  queue_between(before, edition, after, here, stream);
}

// Told in meetings of as many routes as fit into a note.
IpcEngine::Edition& IpcEngine::make_edition(Kept& kept, const Subject& subject, shm::SharedGroup& group,
                                            cuda::Stream stream) {
  Edition& made = kept.editions.at(kept.next);
  made = {};
  kept.next = (kept.next + 1) % kept.editions.size();
  const std::span<const RouteCall> all(kept.calls);
  const auto most = static_cast<size_t>(most_routes(size_));
  for (size_t first = 0; first < all.size(); first += most) {
    const auto some = all.subspan(first, std::min(most, all.size() - first));
    const InputPlaces mine = places_of(some, stream);
    const std::vector<InputPlaces> of_ranks = exchanged(mine, subject, group);
    const std::string disagreement = disagreement_of(of_ranks);
    TORCH_CHECK_VALUE(disagreement.empty(), disagreement);
    or_end(group, [&] {
      const cuda::CurrentDevice current(on(some[0].x.device()).device);
      forget_freed(of_ranks);
      for (size_t i = 0; i < some.size(); ++i) {
        const Taking& taking = kept.takings[first + i];
        add(made.batches, taking.how(), taking.moves(sources_of(some[i], of_ranks, i)));
      }
    });
    made.mine.insert(made.mine.end(), mine.begin(), mine.end());
  }
  for (int64_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (moves_any(made.mine, &InputPlace::pulled, peer)) made.owners.push_back(peer);
    if (moves_any(made.mine, &InputPlace::pushed, peer)) made.takers.push_back(peer);
  }
  or_end(group, [&] {
    OnDevice& here = on(kept.calls[0].x.device());
    const cuda::CurrentDevice current(here.device);
    for (Batch& batch : made.batches) {  // before anything waits: to load a kernel may wait for the device
      batch.tables = cuda::tables_of(batch.moves, batch.how);
      batch.moves.clear();
      here.kernels.load(batch.tables, batch.how);
    }
  });
  for (const RouteCall& call : kept.calls) made.ends.push_back(ends_of(call));
  made.number = group.calls();
  return made;
}

// Whether this rank's tensors lie where they lay, and no other rank has to be told of anything.
bool IpcEngine::holds(const Edition& edition, const Kept& kept, cuda::Stream stream) {
  if (edition.number == 0) return false;
  for (size_t i = 0; i < kept.calls.size(); ++i) {
    if (ends_of(kept.calls[i]) != edition.ends[i]) return false;
  }
  try {
    const cuda::CurrentDevice current(on(kept.calls[0].x.device()).device);
    refuse_capture(stream);
    for (const InputPlace& place : edition.mine) {
      if (place.allocation.number != 0 && !exports_.is_shown(place.allocation.number)) return false;
    }
    return !exports_.has_freed();
  } catch (const cuda::DriverError&) {  // places_of will say it
    return false;
  }
}

// The edition that holds on every rank; null if there is none.
IpcEngine::Edition* IpcEngine::common_edition(Kept& kept, const Subject& subject, shm::SharedGroup& group,
                                              cuda::Stream stream) {
  using Numbers = std::array<uint64_t, kEditions>;
  Numbers mine{};
  for (size_t i = 0; i < mine.size(); ++i) {
    const Edition& edition = kept.editions.at(i);
    if (holds(edition, kept, stream)) mine.at(i) = edition.number;
  }
  std::vector<Numbers> of_ranks(static_cast<size_t>(size_));
  std::vector<int64_t> lengths(of_ranks.size());
  group.gather_notes({.note = std::as_bytes(std::span(mine)),
                      .rows = reinterpret_cast<std::byte*>(of_ranks.data()),
                      .row_bytes = sizeof(Numbers),
                      .lengths = lengths.data()},
                     subject);
  const auto all_have = [&](uint64_t number) {
    return number != 0 && std::all_of(of_ranks.begin(), of_ranks.end(), [&](const Numbers& told) {
             return std::find(told.begin(), told.end(), number) != told.end();
           });
  };
  Edition* common = nullptr;
  for (Edition& edition : kept.editions) {
    const bool is_later = common == nullptr || edition.number > common->number;
    if (is_later && all_have(edition.number)) common = &edition;
  }
  return common;
}

void IpcEngine::run(Kept& kept, bool is_first, const Subject& subject) {
  if (kept.calls.empty()) return;
  const cuda::Stream stream = native_stream(kept.calls[0].x.device());
  prepare(kept);
  memory_->in_turn([&](shm::SharedGroup& group) {
    const Edition* edition = kept.fixed;
    if (edition == nullptr && !is_first) edition = common_edition(kept, subject, group, stream);
    if (edition == nullptr) edition = &make_edition(kept, subject, group, stream);
    or_end(group, [&] { queue(*edition, on(kept.calls[0].x.device()), stream); });
  });
  for (const Taking& taking : kept.takings) taking.land();
}

void IpcEngine::prepare(Kept& kept) {
  if (!kept.takings.empty()) return;
  for (const RouteCall& call : kept.calls) kept.takings.emplace_back(*call.route, call.out);
}

void IpcEngine::fix(Kept& kept, const Subject& subject) {
  if (kept.calls.empty()) return;
  const cuda::Stream stream = native_stream(kept.calls[0].x.device());
  prepare(kept);
  memory_->in_turn(
      [&](shm::SharedGroup& group) { kept.fixed = &make_edition(kept, subject, group, stream); });
}

std::shared_ptr<IpcEngine::Kept> IpcEngine::keep(std::vector<RouteCall> calls) {
  auto kept = std::make_shared<Kept>();
  kept->calls = std::move(calls);
  return kept;
}

void IpcEngine::run_again(Kept& kept, const Subject& subject) { run(kept, false, subject); }

void IpcEngine::run(std::vector<RouteCall> calls, const Subject& subject) {
  Kept once{.calls = std::move(calls)};
  run(once, true, subject);
}

void IpcEngine::check() const {
  if (!watchdog_) return;
  std::optional<int64_t> gone = watchdog_->gone();
  for (int64_t peer = 0; peer < size_; ++peer) {
    if (!gone && flags_->is_released(peer, calls_)) gone = peer;  // another rank was first to see it
  }
  TORCH_CHECK_WITH(DistBackendError, !gone, "rank ", *gone, " is gone: what was received is undefined (rank ",
                   rank_, ")");
}

}  // namespace shardway
