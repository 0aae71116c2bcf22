#include "transport/c10d/lifelines.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <thread>

namespace shardway {
namespace {

// Outside the range of the messages of calls.
constexpr int kTag = 0x6c696665;

// How long a rank that gives up waits until the others have got its farewell. One that is stopped, or has
// made no call yet, does not take it.
constexpr std::chrono::milliseconds kFarewellTime{200};

// How long it keeps its connections then. Others look at their lifelines in that time, and hear it, or see
// that another connection closed before this rank's.
constexpr std::chrono::milliseconds kLinger = 2 * kBeat;

// A peer says that it left and that it gave up, at most. One look more may be that of an aborted wait.
constexpr int kMostFarewells = 4;

// A wait of gloo that takes longer closes the connections; see Nudged.
constexpr std::chrono::milliseconds kAtOnce{1};

constexpr std::chrono::hours kLongest{24 * 365};  // a clock can count so far

// Beyond a wait's own deadline, so that the deadline comes first.
constexpr std::chrono::milliseconds kMargin{1000};

c10::intrusive_ptr<c10d::Backend::Options> options_of(c10d::Backend& engine) {
  try {
    return engine.getBackendOptions();
  } catch (const std::exception&) {  // it has none
    return nullptr;
  }
}

// Whether the engine has begun to write a farewell there. Its first byte is not zero.
bool has_begun(const at::Tensor& bytes) {
  return *static_cast<const volatile uint8_t*>(bytes.const_data_ptr<uint8_t>()) != 0;
}

std::string text_of_closure(const std::string& engines_words) {
  constexpr std::array<std::string_view, 4> kEnds = {"Connection closed by peer", "Connection reset by peer",
                                                     "Broken pipe", "Socket closed"};
  const auto is_said = [&](std::string_view end) { return engines_words.find(end) != std::string::npos; };
  return std::any_of(kEnds.begin(), kEnds.end(), is_said) ? "its process ended, or it closed the connection"
                                                          : engines_words;
}

}  // namespace

Lifelines::Lifelines(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {}

// In a child of fork the receives belong to the parent.
Lifelines::~Lifelines() {
  if (home_.is_this()) return;
  for (Line& line : lines_) (void)line.receive.release();
  for (auto& work : said_) (void)work.release();
  (void)engine_.release();
  (void)options_.release();
}

void Lifelines::lay(const c10::intrusive_ptr<c10d::Backend>& engine) {
  if (has_tried_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (has_tried_.load(std::memory_order_relaxed)) return;
  options_ = engine->getBackendName() == "gloo" ? options_of(*engine) : nullptr;
  if (options_) {
    engine_ = engine;
    for (int64_t peer = 0; peer < engine->getSize(); ++peer) {
      if (peer == engine->getRank()) continue;
      post(lines_.emplace_back(Line{.peer = peer}));
    }
    is_laid_.store(true, std::memory_order_release);
  }
  has_tried_.store(true, std::memory_order_release);
}

// A profiler must not see the receive: it ends after the profile, and its end would be written into memory
// that the profiler has freed.
void Lifelines::post(Line& line) {
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  line.bytes = at::zeros({static_cast<int64_t>(kFarewellBytes)}, at::kByte);
  std::vector<at::Tensor> buffers{line.bytes};
  try {
    line.receive = engine_->recv(buffers, static_cast<int>(line.peer), kTag);
  } catch (const std::exception& error) {
    close(line, error.what());
  }
}

void Lifelines::close(Line& line, const std::string& engines_words) {
  line.receive.reset();
  line.why_closed = text_of_closure(engines_words);
  line.closed_in_look = looks_;
}

// An aborted wait returns at once: false if nothing is wrong, an exception if the connection is closed.
void Lifelines::look_at(Line& line) {
  if (!line.receive) return;
  try {
    line.receive->abort();
    (void)line.receive->wait();
    if (!has_begun(line.bytes)) return;
    (void)line.receive->wait(kMargin);  // for the rest of it
  } catch (const std::exception& error) {
    close(line, error.what());
    return;
  }
  hear(line);
  post(line);
}

void Lifelines::hear(Line& line) {
  const auto* data = line.bytes.const_data_ptr<uint8_t>();
  const auto farewell = farewell_in({data, kFarewellBytes}, engine_->getSize());
  if (!farewell) {
    heard_ = heard_.value_or(Loss{line.peer, "it gave the group up in words that are invalid"});
    return;
  }
  if (farewell->kind == Farewell::Kind::left) {
    line.has_left = true;
    return;
  }
  if (heard_) return;
  if (farewell->cause == engine_->getRank()) {
    heard_ = Loss{line.peer, "it gave the group up, since this rank was missed: " + farewell->why};
  } else {
    heard_ = Loss{farewell->cause, farewell->why};
  }
}

std::optional<Loss> Lifelines::given_up() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

Lifelines::Line* Lifelines::line_of(int64_t peer) {
  for (Line& line : lines_) {
    if (line.peer == peer) return &line;
  }
  return nullptr;
}

std::optional<Loss> Lifelines::found_loss(int64_t peer) {
  if (lost_) return lost_;
  ++looks_;
  for (Line& line : lines_) look_at(line);
  if (heard_) return heard_;
  const Line* line = line_of(peer);
  if (line == nullptr || line->receive) return std::nullopt;
  return loss_at(*line, line->why_closed);
}

// Of `line`, or of a connection that closed before it without a word.
Loss Lifelines::loss_at(const Line& line, const std::string& why) const {
  if (line.has_left) return {line.peer, "it left the group"};
  const Line* first = nullptr;
  int64_t look = line.receive ? looks_ + 1 : line.closed_in_look;
  for (const Line& other : lines_) {
    if (other.receive || other.has_left || other.closed_in_look >= look) continue;
    first = &other;
    look = other.closed_in_look;
  }
  if (first == nullptr) return {line.peer, why};
  return {first->peer, c10::str(first->why_closed, "; rank ", line.peer, "'s connection closed later")};
}

std::optional<Loss> Lifelines::loss(int64_t peer) {
  const std::lock_guard lock(mutex_);
  return found_loss(peer);
}

// gloo fails what is posted one after the other, so the lifeline may still seem to hold.
Loss Lifelines::loss_by(int64_t peer, const std::string& engines_words) {
  const std::lock_guard lock(mutex_);
  if (const auto found = found_loss(peer)) return *found;
  const Line* line = line_of(peer);
  if (line == nullptr) return {peer, engines_words};
  return loss_at(*line, text_of_closure(engines_words));
}

Loss Lifelines::give_up(const Loss& loss, const std::string& text) {
  ledger_->lose(text);
  const std::lock_guard lock(mutex_);
  if (lost_) return *lost_;
  lost_ = loss;
  if (!are_laid()) return loss;
  tell({.kind = Farewell::Kind::gave_up, .cause = loss.rank, .why = loss.why});
  finish_telling();
  std::this_thread::sleep_for(kLinger);
  close_connections();
  return loss;
}

void Lifelines::tell_failure(const std::string& why) {
  give_up_alone("its call failed: " + why, "this rank's call failed: " + why);
}

void Lifelines::tell_interrupt() { give_up_alone("it was interrupted", "this rank was interrupted"); }

void Lifelines::give_up_alone(const std::string& they_read, const std::string& this_rank_reads) {
  if (!home_.is_this() || !are_laid()) return;
  const int64_t rank = engine_->getRank();
  (void)give_up({rank, they_read}, c10::str(this_rank_reads, " (rank ", rank, ")"));
}

void Lifelines::leave() {
  if (!home_.is_this() || !are_laid()) return;
  const std::lock_guard lock(mutex_);
  if (!lost_) tell({.kind = Farewell::Kind::left, .cause = engine_->getRank()});
}

void Lifelines::tell(const Farewell& farewell) {
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);  // see post()
  const FarewellBytes bytes = bytes_of(farewell);
  const at::Tensor buffer = at::empty({static_cast<int64_t>(kFarewellBytes)}, at::kByte);
  std::memcpy(buffer.mutable_data_ptr<uint8_t>(), bytes.data(), bytes.size());
  std::vector<at::Tensor> buffers{buffer};
  for (const Line& line : lines_) {
    if (!line.receive) continue;
    try {
      said_.push_back(engine_->send(buffers, static_cast<int>(line.peer), kTag));
    } catch (const std::exception&) {  // it is gone already
    }
  }
}

void Lifelines::finish_telling() {
  const auto deadline = std::chrono::steady_clock::now() + kFarewellTime;
  for (const auto& work : said_) {
    const Nudged nudged(*work);
    const auto limit = nudged.has_thread() ? kFarewellTime + kMargin : kFarewellTime;
    try {
      while (!work->wait(limit) && std::chrono::steady_clock::now() < deadline) {
      }
    } catch (const std::exception&) {  // it is gone, or does not take it in time
    }
  }
}

// A wait that reaches its timeout closes all connections of the engine's context. A receive that is dropped
// while its message is on its way, with the connection open, would keep gloo's thread busy for ever.
void Lifelines::close_connections() {
  for (Line& line : lines_) {
    try {
      for (int look = 0; look < kMostFarewells && line.receive; ++look) {
        if (line.receive->wait(kAtOnce)) post(line);  // a farewell has come meanwhile: no timeout is reached
      }
    } catch (const std::exception&) {  // that is the purpose
    }
  }
}

// The timeout is the one of now: a user may change that of a group.
PatientWait::PatientWait(Lifelines& lifelines, c10d::Work& work, int64_t peer)
    : lifelines_(lifelines), work_(work), peer_(peer) {
  if (!lifelines.are_laid()) return;
  nudged_.emplace(work);
  timeout_ = std::min<std::chrono::milliseconds>(lifelines.options_->timeout, kLongest);
  deadline_ = Clock::now() + timeout_;
}

std::optional<LostPeer> PatientWait::look() {
  if (const auto loss = lifelines_.loss(peer_)) return LostPeer(*loss);
  if (Clock::now() < deadline_) return std::nullopt;
  return LostPeer({peer_, c10::str("it did not answer within the timeout of ", timeout_.count(), " ms")},
                  /*may_come=*/true);
}

// A wait that is aborted says no even if the message is here. So a loss is believed at the second look, with
// a wait in between: the message may have come before it. A rank that was stopped gets time to hear, too.
bool PatientWait::is_done_after_a_beat() {
  if (!nudged_) {
    work_.wait();
    return true;
  }
  if (const auto loss = lifelines_.given_up()) {
    if (work_.wait(kAtOnce) || work_.wait(kAtOnce)) return true;  // else its connection is closed too
    throw LostPeer(*loss);
  }
  const auto left = std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()), kAtOnce);
  if (work_.wait(left + kMargin)) return true;
  const std::optional<LostPeer> lost = look();
  if (lost && is_in_doubt_) throw LostPeer(*lost);
  is_in_doubt_ = lost.has_value();
  return false;
}

}  // namespace shardway
