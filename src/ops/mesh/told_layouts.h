// What ranks tell one another if a rank takes part in a redistribution without knowing how the tensors lie.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/call/capture.h"
#include "ops/call/layouts_asked.h"
#include "shardway/redistribute.h"

namespace shardway {

// What one rank knows.
struct KnownLayouts {
  // How many tensors there are: one that is no list, a list, or any number.
  enum class Form : uint8_t { one, list, any };

  Form form = Form::any;
  std::vector<std::optional<Layout>> layouts = {};  // one per tensor; none if the form is any
};

// Tells the others what this rank knows, and returns what all know together. Collective; called by every rank
// after LayoutsAsked. Throws as hear_layouts does.
HeardLayouts tell_layouts(const KnownLayouts& mine, const Group& group);

// Runs a redistribution. If a rank asks, tells it the layouts of `known` and runs it again.
template <class Known, class Run>
auto telling(const Known& known, const Group& group, const Run& run) {
  try {
    return run();
  } catch (const LayoutsAsked&) {
    if (Capture* capture = Capture::current()) capture->clear();
    tell_layouts(known(), group);
  }
  return run();
}

}  // namespace shardway
