// Those who know which ranks of a group share a host.
#pragma once

#include <ATen/core/Tensor.h>

#include "transport/common/transport.h"

namespace shardway {

class HostMap;

class KnowsHosts {
 public:
  virtual ~KnowsHosts() = default;

  // Local after the group's first call, and the same on every rank: the hosts, if a tensor like `x` moves in
  // two levels. Null if it does not. If not every rank has a tensor, all pass an undefined one: then null
  // also if the group moves tensors on other devices.
  virtual const HostMap* hosts_for(const at::Tensor& x) = 0;
};

inline const HostMap* hosts_for(Transport& transport, const at::Tensor& x) {
  auto* knows = dynamic_cast<KnowsHosts*>(&transport);
  return knows != nullptr ? knows->hosts_for(x) : nullptr;
}

}  // namespace shardway
