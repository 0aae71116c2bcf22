// The ranks of two meshes and the link level between any two of them.
#pragma once

#include <cstdint>
#include <vector>

#include "shardway/topology.h"

namespace shardway {

// 0 stands for "as fast as one likes".
inline double us_per_byte(double gib_per_s) {
  return gib_per_s > 0 ? 1e6 / (gib_per_s * 1024 * 1024 * 1024) : 0;
}

// Ranks that agree on some outer mesh dims form nested blocks of consecutive positions. Around a rank, a ring
// is what lies in a block but not in the next smaller one. All ranks of a ring are at the same link level.
struct Ring {
  int64_t block = 1;  // positions in the outer block
  size_t level = 0;
};

// Levels are numbered in this order: the dims of the first mesh, the dims of the second one if it is another,
// ranks of one host that share no mesh, and the host border.
class Network {
 public:
  Network(const Topology& topology, const Mesh& senders, const Mesh& receivers);

  const std::vector<Link>& links() const { return links_; }
  const Mesh& senders() const { return sender_mesh_; }
  const Mesh& receivers() const { return receiver_mesh_; }
  bool is_one_mesh() const { return is_one_mesh_; }

  // A number for every rank of either mesh, by position.
  size_t ranks() const { return ranks_; }
  size_t sender_slot(size_t position) const { return is_one_mesh_ ? position : sender_slots_[position]; }
  size_t receiver_slot(size_t position) const { return is_one_mesh_ ? position : receiver_slots_[position]; }
  // Where the receiver at this position stands among the senders, or -1.
  int64_t own_sender(size_t receiver) const {
    return is_one_mesh_ ? static_cast<int64_t>(receiver) : own_senders_[receiver];
  }

  size_t level_between(size_t sender, size_t receiver) const {
    return levels_.empty() ? find_level(sender, receiver) : levels_[receiver * senders_ + sender];
  }

  // The rings around every rank, the outermost first; empty where hosts do not lie in blocks.
  const std::vector<Ring>& rings() const { return rings_; }

  // Positions in a host, if there is one mesh of several hosts that lie in blocks; otherwise 0.
  int64_t host_block() const { return host_block_; }
  const Link& border() const { return links_.back(); }

  // The best figures of all links that ranks may use, and of those inside a host, each by itself.
  const Link& quickest() const { return quickest_; }
  const Link& quickest_inside() const { return quickest_inside_; }
  double base_us() const { return base_us_; }
  double copy_us_per_byte() const { return copy_us_per_byte_; }
  double reduce_us_per_byte() const { return reduce_us_per_byte_; }

 private:
  size_t find_level(size_t sender, size_t receiver) const;
  void number_ranks();
  void find_quickest();
  void find_rings();

  Mesh sender_mesh_;
  Mesh receiver_mesh_;
  bool is_one_mesh_;
  double base_us_;
  double copy_us_per_byte_;
  double reduce_us_per_byte_;
  size_t senders_;
  size_t ranks_ = 0;
  std::vector<int64_t> sender_hosts_;
  std::vector<int64_t> receiver_hosts_;
  std::vector<Link> links_;
  Link quickest_;
  Link quickest_inside_;
  std::vector<size_t> sender_slots_;
  std::vector<size_t> receiver_slots_;
  std::vector<int64_t> own_senders_;
  std::vector<uint8_t> levels_;  // [receiver][sender], where there are few ranks
  std::vector<Ring> rings_;
  int64_t host_block_ = 0;
};

}  // namespace shardway
