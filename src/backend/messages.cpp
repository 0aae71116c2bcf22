// send, recv, and the barrier that names who is missing.
#include <ATen/ATen.h>

#include <sstream>

#include "backend/backend.h"
#include "backend/facts.h"
#include "backend/work.h"
#include "c10d_calls/memory.h"
#include "shm/memory/errors.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

constexpr int64_t kFirstBarrierTag = int64_t{1} << 40;  // c10d's tags are 32 bits wide
constexpr int64_t kNobody = -1;

std::span<const std::byte> number_bytes(const int64_t& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::string joined(const std::vector<int64_t>& ranks) {
  std::ostringstream text;
  for (size_t i = 0; i < ranks.size(); ++i) text << (i > 0 ? ", " : "") << ranks[i];
  return text.str();
}

}  // namespace

void Backend::check_message(const char* name, const Tensors& tensors, std::optional<int64_t> peer) const {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, ": one tensor is expected, not ", tensors.size());
  try {
    const at::Tensor& t = tensors.front();
    check_tensor(t, t.defined() && t.is_cuda() ? c10::DeviceType::CUDA : c10::DeviceType::CPU);
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, name, ": ", error.what_without_backtrace(), " (rank ", rank_, ")");
  }
  if (!peer) return;
  TORCH_CHECK_VALUE(*peer >= 0 && *peer < size_, name, ": rank ", *peer, " is not among the ", size_,
                    " ranks (rank ", rank_, ")");
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  const auto used = engine("send");
  const ParamComms comms([&] { return facts_of_message(*this, "send", tensors); });
  auto work = c10::make_intrusive<CallWork>(rank_, c10d::OpType::SEND, "shardway:send", identity_, tensors,
                                            tensors, 0);
  const auto send_it = [&] {
    const at::Tensor x = packed(tensors.front().cpu());  // of a GPU: the host waits for the copy
    const shm::Label label{.tag = tag, .kind = static_cast<int64_t>(x.scalar_type())};
    used->group().mailbox().send(to, label, bytes_of(x));
  };
  identity_->explain([&] {
    check_message("send", tensors, to);
    translated(rank_, send_it, "send");
  });
  work->complete_at_once();
  return kept(work);
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) { return receive(tensors, from, tag); }

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) { return receive(tensors, std::nullopt, tag); }

WorkPtr Backend::receive(Tensors& tensors, std::optional<int64_t> from, int tag) {
  const auto used = engine("recv");
  identity_->explain([&] { check_message("recv", tensors, from); });
  const ParamComms comms([&] { return facts_of_message(*this, "recv", tensors); });
  const Receiving receiving{
      .engine = used, .futures = futures_, .identity = identity_, .timeout = options_->timeout};
  return kept(c10::make_intrusive<ReceiveWork>(receiving, tensors.front(), from, tag));
}

// Called by rank 0. Returns the ranks that do not report in time.
std::vector<int64_t> Backend::absentees(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout,
                                        bool wait_all_ranks) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout;
  std::vector<int64_t> absent;
  for (int64_t peer = 1; peer < size_; ++peer) {
    auto word = std::make_shared<int64_t>(kNobody);
    const auto receipt = mailbox.ask({.from = peer,
                                      .label = {.tag = tag},
                                      .to = std::as_writable_bytes(std::span(word.get(), 1)),
                                      .owner = word});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    try {
      if (wait_all_ranks || left.count() > 0) {
        const bool is_here = mailbox.wait_or_give_up(receipt, std::max(left, std::chrono::milliseconds(1)));
        if (!is_here) absent.push_back(peer);
      } else if (!mailbox.is_done(receipt)) {
        mailbox.give_up(receipt);
        TORCH_CHECK_WITH(DistBackendError, false, "Rank 0 timed out in monitoredBarrier after ",
                         timeout.count(), " ms, before rank ", peer, " came");
      }
    } catch (const shm::PeerLost& error) {  // after that no rank is heard any more
      absent.push_back(error.peer());
      break;
    }
    if (!absent.empty() && !wait_all_ranks) break;
  }
  return absent;
}

// The messages of each barrier have their own tag, so that a rank that comes late to one barrier does not
// count as present in the next.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto used = engine("monitored_barrier");
  const auto timeout = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  const int64_t tag = kFirstBarrierTag + monitored_barriers_++;
  const auto pass = [&] {
    shm::Mailbox& mailbox = used->group().mailbox();
    if (rank_ != 0) return report_to_first(mailbox, tag, timeout);
    const std::vector<int64_t> absent = absentees(mailbox, tag, timeout, wait_all_ranks);
    const int64_t first = absent.empty() ? kNobody : absent.front();
    for (int64_t peer = 1; peer < size_ && !used->group().is_lost(); ++peer)
      mailbox.send(peer, {.tag = tag}, number_bytes(first));
    TORCH_CHECK_WITH(DistBackendError, absent.empty(), "Rank", absent.size() > 1 ? "s " : " ", joined(absent),
                     " failed to pass monitoredBarrier in ", timeout.count(), " ms (rank 0)");
  };
  identity_->explain([&] { translated(rank_, pass, "monitored_barrier"); });
}

void Backend::report_to_first(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout) {
  auto absent = std::make_shared<int64_t>(kNobody);
  mailbox.send(0, {.tag = tag}, number_bytes(kNobody));
  const auto receipt = mailbox.ask({.from = 0,
                                    .label = {.tag = tag},
                                    .to = std::as_writable_bytes(std::span(absent.get(), 1)),
                                    .owner = absent});
  const auto limit = 2 * timeout;
  TORCH_CHECK_WITH(DistBackendError, mailbox.wait_or_give_up(receipt, limit),
                   "monitored_barrier: rank 0 did not answer within ", limit.count(), " ms (rank ", rank_,
                   ")");
  TORCH_CHECK_WITH(
      DistBackendError, *absent == kNobody, "Rank ", rank_,
      " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: "
      "Rank ",
      *absent, " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

}  // namespace shardway::backend
