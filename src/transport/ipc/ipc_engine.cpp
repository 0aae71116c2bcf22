#include "transport/ipc/ipc_engine.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "shm/board/thresholds.h"
#include "transport/ipc/native_stream.h"

namespace shardway {
namespace {

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

// The values of flags, and where peers' inputs lie, would be those of the capture in every replay.
void refuse_capture(cuda::Stream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  int status = 0;
  driver.check(driver.functions().cuStreamIsCapturing(stream, &status), "look at a stream");
  if (status != 0) throw cuda::DriverError("a call between processes cannot be captured in a CUDA graph");
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

}  // namespace

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

// Adds what the GPU says; throws DriverError if it cannot be used.
void IpcEngine::fill(InputPlace& place, const at::Tensor& x, cuda::Stream stream) {
  OnDevice& here = on(x.device());
  const cuda::CurrentDevice current(here.device);
  refuse_capture(stream);
  place.gpu = here.device.uuid();
  open_flags();
  place.freed = exports_.next_freed();
  if (x.numel() == 0) return;
  const cuda::Exports::Shown at =
      exports_.place_of(reinterpret_cast<cuda::DeviceAddress>(x.const_data_ptr()));
  place.allocation = at.allocation;
  place.offset = at.offset;
}

std::vector<InputPlace> IpcEngine::exchanged(const InputPlace& mine, const Subject& subject,
                                             shm::SharedGroup& group) {
  const std::vector<std::byte> note = written(mine);
  const auto row_bytes = static_cast<size_t>(shm::kNoteBytes);
  rows_.resize(row_bytes * static_cast<size_t>(size_));
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  group.gather_notes(
      {.note = note, .rows = rows_.data(), .row_bytes = shm::kNoteBytes, .lengths = lengths.data()}, subject);
  std::vector<InputPlace> places;
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    const std::span row(rows_.data() + rank * row_bytes, static_cast<size_t>(lengths[rank]));
    places.push_back(read_place(row, size_, static_cast<int64_t>(rank)));
  }
  return places;
}

void IpcEngine::forget_freed(const std::vector<InputPlace>& places) {
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].freed != 0) imports_[rank].close(places[rank].freed);
  }
}

Taking::Sources IpcEngine::sources_of(const Route& route, const at::Tensor& x,
                                      const std::vector<InputPlace>& places) {
  Taking::Sources sources;
  int64_t nth = 0;  // of the pulls from one peer
  for (size_t i = 0; i < route.pulls.size(); ++i) {
    const Move& pull = route.pulls[i];
    const InputPlace& place = places[static_cast<size_t>(pull.peer)];
    nth = i > 0 && route.pulls[i - 1].peer == pull.peer ? nth + 1 : 0;
    cuda::StridedBox& source = sources.emplace_back(cuda::StridedBox{.strides = place.strides});
    if (pull.mine.volume() == 0) continue;
    const int64_t offset = offset_of(pull, place, rank_, nth);
    source.address = pull.peer == rank_ ? reinterpret_cast<cuda::DeviceAddress>(x.const_data_ptr()) -
                                              static_cast<cuda::DeviceAddress>(place.offset)
                                        : imports_[static_cast<size_t>(pull.peer)].open(
                                              place.allocation, c10::str("rank ", pull.peer));
    source.address += static_cast<cuda::DeviceAddress>(offset);
  }
  return sources;
}

void IpcEngine::queue(const std::vector<cuda::MoveTable>& tables, const std::optional<shm::Combine>& how,
                      const InputPlace& mine, OnDevice& here, cuda::Stream stream) {
  const cuda::Driver& driver = cuda::Driver::instance();
  if (calls_ > 0 && stream != last_stream_)  // flags are written in the order of the calls
    driver.check(driver.functions().cuStreamWaitEvent(stream, last_, 0), "order two streams");
  watchdog_->expect(++calls_);
  std::vector<cuda::MemoryOp> before;
  std::vector<cuda::MemoryOp> after;
  const auto for_peers = [&](const auto& body) {
    for (int64_t peer = 0; peer < size_; ++peer) {
      if (peer != rank_) body(peer);
    }
  };
  for_peers([&](int64_t peer) {
    before.push_back(flags_->write_ready(peer, rank_, calls_));
    after.push_back(flags_->write_done(peer, rank_, calls_));
  });
  for_peers([&](int64_t peer) {
    const auto p = static_cast<size_t>(peer);
    if (mine.pulled[p] > 0) before.push_back(flags_->wait_ready(rank_, peer, calls_));
    if (mine.pushed[p] > 0) after.push_back(flags_->wait_done(rank_, peer, calls_));
  });
  cuda::queue(before, stream);
  here.kernels.launch(tables, how, stream);
  cuda::queue(after, stream);
  driver.check(driver.functions().cuEventRecord(last_, stream), "record an event");
  last_stream_ = stream;
  last_device_ = &here;
}

void IpcEngine::run(const Route& route, const at::Tensor& x, const at::Tensor& out, const Subject& subject) {
  const cuda::Stream stream = native_stream(x.device());
  const Taking taking(route, out);
  memory_->in_turn([&](shm::SharedGroup& group) {
    InputPlace mine = place_of(route, x);
    try {
      fill(mine, x, stream);
    } catch (const cuda::DriverError& error) {
      mine.problem = error.what();
    }
    const std::vector<InputPlace> places = exchanged(mine, subject, group);
    const std::string disagreement = disagreement_of(places);
    TORCH_CHECK_VALUE(disagreement.empty(), disagreement);
    or_end(group, [&] {
      OnDevice& here = on(x.device());
      const cuda::CurrentDevice current(here.device);
      forget_freed(places);
      const std::vector<cuda::MoveTable> tables = taking.tables(sources_of(route, x, places));
      here.kernels.load(tables, taking.how());
      queue(tables, taking.how(), mine, here, stream);
    });
  });
  taking.land();
}

void IpcEngine::check() const {
  const auto gone = watchdog_ ? watchdog_->gone() : std::nullopt;
  TORCH_CHECK_WITH(DistBackendError, !gone, "rank ", *gone, " is gone: what was received is undefined (rank ",
                   rank_, ")");
}

}  // namespace shardway
