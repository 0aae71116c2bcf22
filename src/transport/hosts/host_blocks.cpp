#include "transport/hosts/host_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "shm/board/thresholds.h"
#include "transport/hosts/gathered_runs.h"

namespace shardway {
namespace {

// Longer blocks go as tensors.
constexpr int64_t kMostInsideBytes = shm::kNoteBytes;

// A block between hosts begins with its length, since engines do not tell how long a message was.
constexpr int64_t kLengthBytes = sizeof(int64_t);

int64_t length_in(const at::Tensor& frame) {
  int64_t length = 0;
  std::memcpy(&length, frame.const_data_ptr(), sizeof(length));
  return length;
}

at::Tensor framed(const at::Tensor& block, int64_t frame_bytes) {
  at::Tensor frame = at::empty({frame_bytes}, at::kByte);
  const int64_t length = block.numel();
  std::memcpy(frame.mutable_data_ptr(), &length, sizeof(length));
  frame.narrow(0, kLengthBytes, length).copy_(block);
  return frame;
}

// This rank's block on its way to one rank of each other host, and the blocks that come here in exchange.
class Crossing {
 public:
  Crossing(const at::Tensor& mine, int64_t row_bytes, const HostMap& hosts, Mail& mail) {
    const int64_t frame_bytes = kLengthBytes + row_bytes;
    sent_ = framed(mine, mail.takes_shorter() ? kLengthBytes + mine.numel() : frame_bytes);
    const int64_t host = hosts.host_of(mail.rank());
    const int64_t place = hosts.place_of(mail.rank());
    for (const int64_t rank : hosts.carried_by(host, place)) {
      const at::Tensor frame = at::zeros({frame_bytes}, at::kByte);
      letters_.push_back(mail.receive_up_to(frame, rank));
      frames_.emplace_back(rank, frame);
    }
    for (int64_t step = 1; step < hosts.hosts(); ++step) {
      const auto& there = hosts.ranks_of((host + step) % hosts.hosts());
      letters_.push_back(mail.send(sent_, there[static_cast<size_t>(place) % there.size()]));
    }
  }

  // The blocks that came here, one after another, each behind its length.
  at::Tensor finish(int64_t row_bytes) {
    for (; !letters_.empty(); letters_.pop_front()) letters_.front()->wait();
    std::vector<at::Tensor> exact;
    for (const auto& [rank, frame] : frames_) {
      const int64_t length = length_in(frame);
      TORCH_CHECK_WITH(DistBackendError, length >= 0 && length <= row_bytes, "rank ", rank,
                       " sent a block of ", length, " bytes where at most ", row_bytes, " were expected");
      exact.push_back(frame.narrow(0, 0, kLengthBytes + length));
    }
    return exact.empty() ? at::empty({0}, at::kByte) : at::cat(exact);
  }

 private:
  at::Tensor sent_;
  std::vector<std::pair<int64_t, at::Tensor>> frames_;
  std::deque<std::unique_ptr<Letter>> letters_;
};

// Gathers runs of bytes whose lengths only their owners know. `mates` are the ranks of this host.
std::vector<at::Tensor> gathered_up_to(int64_t most_bytes, const at::Tensor& run,
                                       const std::vector<int64_t>& mates, Transport& inside,
                                       const Subject& subject) {
  std::vector<at::Tensor> runs;
  if (most_bytes <= kMostInsideBytes) {
    const Blocks blocks = inside.all_gather_block(run, most_bytes, subject);
    for (size_t place = 0; place < mates.size(); ++place)
      runs.push_back(blocks.rows.select(0, static_cast<int64_t>(place)).narrow(0, 0, blocks.bytes[place]));
    return runs;
  }
  const at::Tensor length = at::empty({kLengthBytes}, at::kByte);
  const int64_t bytes = run.numel();
  std::memcpy(length.mutable_data_ptr(), &bytes, sizeof(bytes));
  const Blocks told = inside.all_gather_block(length, kLengthBytes, subject);
  std::vector<int64_t> lengths;
  for (size_t place = 0; place < mates.size(); ++place) {
    lengths.push_back(length_in(told.rows.select(0, static_cast<int64_t>(place))));
    TORCH_CHECK_WITH(DistBackendError, lengths.back() >= 0 && lengths.back() <= most_bytes, "rank ",
                     mates[place], " has blocks of ", lengths.back(), " bytes");
  }
  return gathered(run, lengths, inside, subject);
}

}  // namespace

Blocks all_gather_block_by_hosts(const at::Tensor& mine, int64_t row_bytes, const HostMap& hosts,
                                 Transport& inside, const MailOffice::Opened& between,
                                 const Subject& subject) {
  Crossing crossing(mine, row_bytes, hosts, *between.mail);
  Blocks blocks{.rows = at::zeros({hosts.ranks(), row_bytes}, at::kByte),
                .bytes = c10::SmallVector<int64_t, 8>(static_cast<size_t>(hosts.ranks()), row_bytes),
                .number = between.number};
  const auto put = [&](int64_t rank, const at::Tensor& block) {
    blocks.rows.select(0, rank).narrow(0, 0, block.numel()).copy_(block);
    blocks.bytes[static_cast<size_t>(rank)] = block.numel();
  };
  const int64_t host = hosts.host_of(between.mail->rank());
  const std::vector<int64_t>& mates = hosts.ranks_of(host);
  const std::vector<at::Tensor> here = gathered_up_to(row_bytes, mine, mates, inside, subject);
  for (size_t place = 0; place < mates.size(); ++place) put(mates[place], here[place]);

  size_t most = 0;
  for (size_t place = 0; place < mates.size(); ++place)
    most = std::max(most, hosts.carried_by(host, static_cast<int64_t>(place)).size());
  const auto most_bytes = static_cast<int64_t>(most) * (kLengthBytes + row_bytes);
  const std::vector<at::Tensor> runs =
      gathered_up_to(most_bytes, crossing.finish(row_bytes), mates, inside, subject);
  for (size_t place = 0; place < mates.size(); ++place) {
    at::Tensor left = runs[place];
    for (const int64_t rank : hosts.carried_by(host, static_cast<int64_t>(place))) {
      TORCH_CHECK_WITH(DistBackendError, left.numel() >= kLengthBytes, "rank ", mates[place],
                       " handed on too few blocks");
      const int64_t length = length_in(left);
      TORCH_CHECK_WITH(DistBackendError,
                       length >= 0 && length <= row_bytes && length <= left.numel() - kLengthBytes, "rank ",
                       mates[place], " handed on a block of ", length, " bytes");
      put(rank, left.narrow(0, kLengthBytes, length));
      left = left.narrow(0, kLengthBytes + length, left.numel() - kLengthBytes - length);
    }
  }
  return blocks;
}

}  // namespace shardway
