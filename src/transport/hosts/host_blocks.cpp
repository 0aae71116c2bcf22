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

at::Tensor framed(const at::Tensor& block) {
  at::Tensor frame = at::empty({kLengthBytes + block.numel()}, at::kByte);
  const int64_t length = block.numel();
  std::memcpy(frame.mutable_data_ptr(), &length, sizeof(length));
  frame.narrow(0, kLengthBytes, length).copy_(block);
  return frame;
}

// Takes the first block from frames that `teller` sent or handed on.
at::Tensor take_block(at::Tensor& frames, int64_t row_bytes, int64_t teller) {
  TORCH_CHECK_WITH(DistBackendError, frames.numel() >= kLengthBytes, "rank ", teller, " told too few blocks");
  const int64_t length = length_in(frames);
  TORCH_CHECK_WITH(DistBackendError,
                   length >= 0 && length <= row_bytes && length <= frames.numel() - kLengthBytes, "rank ",
                   teller, " told a block of ", length, " bytes where at most ", row_bytes, " were expected");
  at::Tensor block = frames.narrow(0, kLengthBytes, length);
  frames = frames.narrow(0, kLengthBytes + length, frames.numel() - kLengthBytes - length);
  return block;
}

// The blocks of hosts on their way between the first ranks of these; other ranks send and receive nothing.
class Crossing {
 public:
  // Receives before it sends: an engine that knows where a message goes moves it at once.
  Crossing(int64_t row_bytes, const HostMap& hosts, Mail& mail)
      : row_bytes_(row_bytes), hosts_(hosts), mail_(mail), host_(hosts.host_of(mail.rank())) {
    if (hosts.place_of(mail.rank()) != 0) return;
    for (int64_t step = 1; step < hosts.hosts(); ++step) {
      const int64_t host = (host_ - step + hosts.hosts()) % hosts.hosts();
      frames_.push_back({.host = host, .bytes = at::zeros({most_bytes_of(host)}, at::kByte)});
      letters_.push_back(mail.receive_up_to(frames_.back().bytes, first_of(host)));
    }
  }

  void send(const std::vector<at::Tensor>& blocks_here) {
    if (frames_.empty()) return;
    std::vector<at::Tensor> framed_here;
    for (const at::Tensor& block : blocks_here) framed_here.push_back(framed(block));
    at::Tensor sent = at::cat(framed_here);
    if (!mail_.takes_shorter()) sent = at::constant_pad_nd(sent, {0, most_bytes_of(host_) - sent.numel()});
    for (int64_t step = 1; step < hosts_.hosts(); ++step)
      letters_.push_back(mail_.send(sent, first_of((host_ + step) % hosts_.hosts())));
  }

  // The frames that came here, in the order of their ranks' hosts.
  at::Tensor finish() {
    for (; !letters_.empty(); letters_.pop_front()) letters_.front()->wait();
    std::sort(frames_.begin(), frames_.end(),
              [](const Frames& a, const Frames& b) { return a.host < b.host; });
    std::vector<at::Tensor> exact = {at::empty({0}, at::kByte)};
    for (const Frames& frames : frames_) {
      at::Tensor left = frames.bytes;
      for (size_t i = 0; i < hosts_.ranks_of(frames.host).size(); ++i)
        take_block(left, row_bytes_, first_of(frames.host));
      exact.push_back(frames.bytes.narrow(0, 0, frames.bytes.numel() - left.numel()));
    }
    return at::cat(exact);
  }

  // Of what came here.
  int64_t most_bytes() const {
    return (hosts_.ranks() - static_cast<int64_t>(hosts_.ranks_of(host_).size())) *
           (kLengthBytes + row_bytes_);
  }

 private:
  struct Frames {
    int64_t host = 0;
    at::Tensor bytes = {};
  };

  int64_t first_of(int64_t host) const { return hosts_.ranks_of(host).front(); }
  int64_t most_bytes_of(int64_t host) const {
    return static_cast<int64_t>(hosts_.ranks_of(host).size()) * (kLengthBytes + row_bytes_);
  }

  int64_t row_bytes_;
  const HostMap& hosts_;
  Mail& mail_;
  int64_t host_;
  std::vector<Frames> frames_;
  std::deque<std::unique_ptr<Letter>> letters_;
};

// Gathers runs of bytes whose lengths only their owners know. `mates` are the ranks of this host. A run that
// is short, as most are, goes with its length; if one is long, all follow theirs.
std::vector<at::Tensor> gathered_up_to(int64_t most_bytes, const at::Tensor& run,
                                       const std::vector<int64_t>& mates, Transport& inside,
                                       const Subject& subject) {
  const int64_t room = std::min(most_bytes, kMostInsideBytes - kLengthBytes);
  const at::Tensor note = framed(run).narrow(0, 0, kLengthBytes + (run.numel() <= room ? run.numel() : 0));
  const Blocks told = inside.all_gather_block(note, kLengthBytes + room, subject);
  std::vector<int64_t> lengths;
  std::vector<at::Tensor> runs;
  for (size_t place = 0; place < mates.size(); ++place) {
    const at::Tensor row = told.rows.select(0, static_cast<int64_t>(place)).narrow(0, 0, told.bytes[place]);
    const int64_t length = row.numel() < kLengthBytes ? -1 : length_in(row);
    const bool is_here = length <= room;
    TORCH_CHECK_WITH(
        DistBackendError,
        length >= 0 && length <= most_bytes && row.numel() >= kLengthBytes + (is_here ? length : 0), "rank ",
        mates[place], " has blocks of ", length, " bytes");
    lengths.push_back(length);
    if (is_here) runs.push_back(row.narrow(0, kLengthBytes, length));
  }
  return runs.size() == mates.size() ? runs : gathered(run, lengths, inside, subject);
}

}  // namespace

Blocks all_gather_block_by_hosts(const at::Tensor& mine, int64_t row_bytes, const HostMap& hosts,
                                 Transport& inside, const MailOffice::Opened& between,
                                 const Subject& subject) {
  Crossing crossing(row_bytes, hosts, *between.mail);
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

  crossing.send(here);
  at::Tensor left = gathered_up_to(crossing.most_bytes(), crossing.finish(), mates, inside, subject).front();
  for (int64_t other = 0; other < hosts.hosts(); ++other) {
    if (other == host) continue;
    for (const int64_t rank : hosts.ranks_of(other)) put(rank, take_block(left, row_bytes, mates.front()));
  }
  return blocks;
}

}  // namespace shardway
