#include "transport/c10d/lifelines.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace shardway {
namespace {

constexpr int64_t kRanks = 3;

std::optional<Farewell> sent_and_read(const Farewell& farewell) {
  return farewell_in(bytes_of(farewell), kRanks);
}

TEST(Farewell, ArrivesAsItWasSaid) {
  const auto read = sent_and_read({.kind = Farewell::Kind::gave_up, .cause = 2, .why = "its process ended"});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, Farewell::Kind::gave_up);
  EXPECT_EQ(read->cause, 2);
  EXPECT_EQ(read->why, "its process ended");
  EXPECT_EQ(sent_and_read({.kind = Farewell::Kind::left, .cause = 0})->kind, Farewell::Kind::left);
}

TEST(Farewell, HasAFirstByteThatIsNotZero) {
  EXPECT_NE(bytes_of({.kind = Farewell::Kind::left}).front(), 0);
  EXPECT_NE(bytes_of({.kind = Farewell::Kind::gave_up}).front(), 0);
}

TEST(Farewell, IsCutIfItIsTooLong) {
  const std::string why(2 * kFarewellBytes, 'w');
  const auto read = sent_and_read({.kind = Farewell::Kind::gave_up, .cause = 1, .why = why});
  ASSERT_TRUE(read);
  EXPECT_GT(read->why.size(), kFarewellBytes / 2);
  EXPECT_LT(read->why.size(), kFarewellBytes);
  EXPECT_TRUE(why.starts_with(read->why));
}

TEST(Farewell, IsReadAsOneLineWhateverItHolds) {
  const auto read = sent_and_read({.kind = Farewell::Kind::gave_up, .cause = 1, .why = "one\ntwo\x1b[2J"});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->why, "one two [2J");
}

TEST(Farewell, IsRefusedIfItsBytesAreInvalid) {
  const FarewellBytes good = bytes_of({.kind = Farewell::Kind::gave_up, .cause = 1, .why = "why"});
  ASSERT_TRUE(farewell_in(good, kRanks));
  EXPECT_FALSE(farewell_in(good, 1)) << "a cause outside the group";
  EXPECT_FALSE(farewell_in(std::span(good).first(kFarewellBytes - 1), kRanks)) << "too short";
  EXPECT_FALSE(farewell_in({}, kRanks));
  for (size_t at = 0; at < 16; ++at) {  // the bytes before the text: none may lead outside
    for (const int value : {0, 3, 0x7f, 0xff}) {
      FarewellBytes bad = good;
      bad[at] = static_cast<uint8_t>(value);
      const auto read = farewell_in(bad, kRanks);
      if (!read) continue;
      EXPECT_LT(read->why.size(), kFarewellBytes);
      EXPECT_TRUE(read->cause >= 0 && read->cause < kRanks);
    }
  }
}

// A message as gloo has it: a wait that is aborted says no, even if the message is here; the next one says
// yes.
class FakeMessage : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(guard_);
    const auto is_over = [this] {
      if (has_failed_ && !is_here_) throw std::runtime_error("Connection closed by peer [here]");
      return is_aborted_ || is_here_;
    };
    if (!changed_.wait_for(lock, std::min<std::chrono::milliseconds>(timeout, kLimit), is_over)) {
      has_timed_out = true;
      throw std::runtime_error("Timed out");
    }
    if (std::exchange(is_aborted_, false)) return false;
    return is_here_;
  }

  bool has_timed_out = false;  // then gloo closes all connections

  void abort() override {
    change([this] { is_aborted_ = true; });
  }
  void arrive() {
    change([this] { is_here_ = true; });
  }
  void fail() {
    change([this] { has_failed_ = true; });
  }

 private:
  static constexpr std::chrono::seconds kLimit{10};

  template <class Change>
  void change(Change&& make) {
    const std::lock_guard lock(guard_);
    make();
    changed_.notify_all();
  }

  std::mutex guard_;
  std::condition_variable changed_;
  bool is_here_ = false;
  bool is_aborted_ = false;
  bool has_failed_ = false;
};

// Rank 0 of three ranks whose messages the test delivers.
class FakeGloo : public c10d::Backend {
 public:
  explicit FakeGloo(std::chrono::milliseconds timeout)
      : Backend(0, kRanks), options_(c10::make_intrusive<Options>("gloo", timeout)) {}

  const std::string getBackendName() const override { return "gloo"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) override {
    if (is_closed[from]) throw std::runtime_error("Connection closed by peer [there]");
    buffer[from] = tensors[0];
    receive[from] = c10::make_intrusive<FakeMessage>();
    return receive[from];
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) override {
    const auto* bytes = tensors[0].const_data_ptr<uint8_t>();
    told[to] = farewell_in({bytes, kFarewellBytes}, kRanks);
    auto sent = c10::make_intrusive<FakeMessage>();
    sent->arrive();
    return sent;
  }

  void say(int from, const Farewell& farewell) {
    const FarewellBytes bytes = bytes_of(farewell);
    std::memcpy(buffer[from].mutable_data_ptr<uint8_t>(), bytes.data(), bytes.size());
    receive[from]->arrive();
  }

  void close(int peer) {
    is_closed[peer] = true;
    receive[peer]->fail();
  }

  std::array<at::Tensor, kRanks> buffer;
  std::array<c10::intrusive_ptr<FakeMessage>, kRanks> receive;
  std::array<std::optional<Farewell>, kRanks> told;
  std::array<bool, kRanks> is_closed = {};

 private:
  c10::intrusive_ptr<Options> options_;
};

class LifelinesTest : public ::testing::Test {
 protected:
  void lay(std::chrono::milliseconds timeout = std::chrono::hours(1)) {
    gloo_ = c10::make_intrusive<FakeGloo>(timeout);
    lifelines_.lay(gloo_);
  }

  // What ends a wait for a message of `peer`; empty if it arrives.
  std::string end_of_wait(int64_t peer) {
    PatientWait wait(lifelines_, message_, peer);
    try {
      while (!wait.is_done_after_a_beat()) {
      }
      return "";
    } catch (const LostPeer& lost) {
      return c10::str(lost.loss.rank, ": ", lost.loss.why);
    }
  }

  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  Lifelines lifelines_{ledger_};
  c10::intrusive_ptr<FakeGloo> gloo_;
  FakeMessage message_;
};

TEST_F(LifelinesTest, AClosedConnectionEndsWaitsForThatRank) {
  lay();
  gloo_->close(1);
  EXPECT_EQ(end_of_wait(1), "1: its process ended, or it closed the connection");
}

TEST_F(LifelinesTest, AClosedConnectionEndsNoOtherWait) {
  lay();
  gloo_->close(1);
  std::thread later([this] {
    std::this_thread::sleep_for(4 * kBeat);
    message_.arrive();
  });
  EXPECT_EQ(end_of_wait(2), "");
  later.join();
}

TEST_F(LifelinesTest, AMessageThatCameBeforeTheConnectionClosedIsNotLost) {
  lay();
  message_.arrive();
  message_.abort();  // a nudge at the same moment
  gloo_->say(1, {.kind = Farewell::Kind::left, .cause = 1});
  gloo_->is_closed[1] = true;
  EXPECT_EQ(end_of_wait(1), "");
}

TEST_F(LifelinesTest, ARankThatLeftIsSaidToHaveLeft) {
  lay();
  gloo_->say(1, {.kind = Farewell::Kind::left, .cause = 1});
  gloo_->is_closed[1] = true;
  EXPECT_EQ(end_of_wait(1), "1: it left the group");
}

TEST_F(LifelinesTest, ARankThatGaveUpEndsEveryWaitAndSaysWhy) {
  lay();
  gloo_->say(1, {.kind = Farewell::Kind::gave_up, .cause = 2, .why = "its process ended"});
  EXPECT_EQ(end_of_wait(1), "2: its process ended");
}

TEST_F(LifelinesTest, ARankThatIsGivenUpHearsWhoGaveItUp) {
  lay();
  gloo_->say(1, {.kind = Farewell::Kind::gave_up, .cause = 0, .why = "it did not come"});
  EXPECT_EQ(end_of_wait(2), "1: it gave the group up, since this rank was missed: it did not come");
}

TEST_F(LifelinesTest, WordsThatAreInvalidEndTheGroup) {
  lay();
  gloo_->buffer[2].fill_(0xff);
  gloo_->receive[2]->arrive();
  EXPECT_EQ(end_of_wait(1), "2: it gave the group up in words that are invalid");
}

TEST_F(LifelinesTest, AWaitEndsAtTheTimeout) {
  lay(std::chrono::milliseconds(200));
  EXPECT_EQ(end_of_wait(1), "1: it did not answer within the timeout of 200 ms");
}

TEST_F(LifelinesTest, GivingUpTellsAllOthersAndKeepsTheFirstLoss) {
  lay();
  EXPECT_EQ(lifelines_.give_up({2, "its process ended"}, "rank 2 is lost").rank, 2);
  EXPECT_EQ(lifelines_.give_up({1, "it left the group"}, "rank 1 is lost").rank, 2);
  for (const int peer : {1, 2}) {
    ASSERT_TRUE(gloo_->told[peer]);
    EXPECT_EQ(gloo_->told[peer]->kind, Farewell::Kind::gave_up);
    EXPECT_EQ(gloo_->told[peer]->cause, 2);
    EXPECT_EQ(gloo_->told[peer]->why, "its process ended");
  }
  EXPECT_EQ(lifelines_.loss_by(1, "Application timeout caused pair closure").rank, 2);
  EXPECT_THROW(ledger_->check(), c10::DistBackendError);
}

TEST_F(LifelinesTest, GivingUpClosesConnectionsAlsoWhereAFarewellHasJustCome) {
  lay();
  for (const int peer : {1, 2})
    gloo_->say(peer, {.kind = Farewell::Kind::gave_up, .cause = 1, .why = "it died"});
  lifelines_.give_up({.rank = 1, .why = "it died"}, "rank 1 died");
  EXPECT_TRUE(gloo_->receive[1]->has_timed_out || gloo_->receive[2]->has_timed_out);
}

TEST_F(LifelinesTest, AFailureOfThisRankIsToldAndEndsItsLaterCalls) {
  lay();
  lifelines_.tell_failure("out of memory");
  ASSERT_TRUE(gloo_->told[1]);
  EXPECT_EQ(gloo_->told[1]->cause, 0);
  EXPECT_EQ(gloo_->told[1]->why, "its call failed: out of memory");
  EXPECT_THROW(ledger_->check(), c10::DistBackendError);
}

TEST_F(LifelinesTest, LeavingTellsAllOthers) {
  lay();
  lifelines_.leave();
  ASSERT_TRUE(gloo_->told[1] && gloo_->told[2]);
  EXPECT_EQ(gloo_->told[1]->kind, Farewell::Kind::left);
  EXPECT_NO_THROW(ledger_->check());
}

TEST_F(LifelinesTest, WithoutThemAFailureStaysWithThisRank) {
  lifelines_.tell_failure("out of memory");
  EXPECT_NO_THROW(ledger_->check());
}

int64_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(Nudged, WaitsEndAgainAndAgainAndTheThreadEndsAfterThem) {
  const int64_t before = threads_of_process();
  const auto start = std::chrono::steady_clock::now();
  {
    FakeMessage message;
    const Nudged nudged(message);
    ASSERT_TRUE(nudged.has_thread());
    for (int beats = 0; beats < 3; ++beats) EXPECT_FALSE(message.wait(std::chrono::hours(1)));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads_of_process() > before && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(kBeat);
  EXPECT_EQ(threads_of_process(), before);
}

TEST(Nudged, OneWaitThatEndsLeavesTheOthersNudged) {
  FakeMessage first;
  FakeMessage second;
  auto one = std::make_unique<Nudged>(first);
  const Nudged other(second);
  one.reset();
  EXPECT_FALSE(second.wait(std::chrono::hours(1)));
}

}  // namespace
}  // namespace shardway
