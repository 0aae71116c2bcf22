// A route whose input is still to be made: what is posted before it is there.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/c10d/mail_transfer.h"

namespace shardway::testing {
namespace {

using Log = std::vector<std::string>;

// Mail that notes what is posted. Every message is done at once.
class NotedMail : public Mail {
 public:
  NotedMail(int64_t size, Log& log) : size_(size), log_(log) {}

  int64_t rank() const override { return 0; }
  int64_t size() const override { return size_; }
  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    log_.push_back("send " + std::to_string(bytes[0].item<int64_t>()) + " to " + std::to_string(to));
    return std::make_unique<Done>();
  }
  std::unique_ptr<Letter> receive(const at::Tensor& /*bytes*/, int64_t from) override {
    log_.push_back("receive from " + std::to_string(from));
    return std::make_unique<Done>();
  }
  bool takes_shorter() const override { return false; }
  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return receive(bytes, from);
  }

 private:
  struct Done : Letter {
    void wait() override {}
  };

  int64_t size_;
  Log& log_;
};

// Rank 0 of a gather of a byte from each rank.
struct Expected {
  explicit Expected(int64_t ranks)
      : route(all_gather_route(
            {.shape = {0}, .dim = 0, .sizes = std::vector<int64_t>(static_cast<size_t>(ranks), 1)}, 0)),
        x(at::zeros({1}, at::kByte)),
        out(at::zeros({ranks}, at::kByte)),
        transfer(expect_by_mail(std::make_shared<NotedMail>(ranks, log), route, x, out)) {}

  Log log;
  Route route;
  at::Tensor x;
  at::Tensor out;
  std::unique_ptr<ExpectingTransfer> transfer;
};

TEST(ExpectingTransfer, ReceivesAtOnceAndSendsWhatTheInputIsByThen) {
  Expected call(3);
  EXPECT_EQ(call.log, (Log{"receive from 2", "receive from 1"}));
  call.x.fill_(7);
  call.transfer->send();
  call.transfer->finish();
  EXPECT_EQ(call.log, (Log{"receive from 2", "receive from 1", "send 7 to 1", "send 7 to 2"}));
  EXPECT_EQ(call.out[0].item<int64_t>(), 7);
}

// Peers would take an input that was never made for the one that they wait for.
TEST(ExpectingTransfer, ThatIsDroppedBeforeSendsNothing) {
  Expected call(3);
  call.transfer.reset();
  EXPECT_EQ(call.log.size(), 2U);
}

// More messages than may be under way: a receive is posted beside each send, as both ends expect it.
TEST(ExpectingTransfer, OfManyMessagesPostsNoneBefore) {
  Expected call(100);
  EXPECT_TRUE(call.log.empty());
  call.transfer->send();
  EXPECT_EQ(call.log[0], "receive from 99");
  EXPECT_EQ(call.log[1], "send 0 to 1");
  call.transfer->finish();
  EXPECT_EQ(call.log.size(), 198U);
}

}  // namespace
}  // namespace shardway::testing
