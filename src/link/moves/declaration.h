// What a rank declares: its tensors, described, and what is wrong with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/text/json.h"
#include "shardway/link.h"

namespace shardway::link {

// This rank's parts, undefined outside a tensor's mesh.
using TensorsByName = std::map<std::string, at::Tensor>;
using SharedTensors = std::shared_ptr<const TensorsByName>;

struct Declaration {
  Json entries = Json::object();
  SharedTensors parts = nullptr;
  std::map<std::string, Load> loads = {};
  std::vector<std::string> problems = {};
  std::vector<std::string> refused = {};  // names that have a problem instead of an entry

  static Declaration of(const std::vector<NamedTensor>& tensors, int64_t rank, int64_t size);

  // What the hub is told, `version` aside.
  Json said(const std::string& call, bool cast) const;
};

}  // namespace shardway::link
