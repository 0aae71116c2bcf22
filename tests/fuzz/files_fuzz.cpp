// Any file is a topology or a plan, or is refused by std::invalid_argument. What is read is written and read
// again.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "shardway/plan.h"

namespace shardway {
namespace {

void read_topology_text(const std::string& text) {
  const Topology topology = topology_from_json(text);
  if (!(topology_from_json(to_json(topology)) == topology)) std::abort();
}

void read_plan_text(const std::string& text) {
  const std::string written = to_json(plan_from_json(text));
  if (to_json(plan_from_json(written)) != written) std::abort();
}

template <class Read>
void read_or_refuse(const Read& read, const std::string& text) {
  try {
    read(text);
  } catch (const std::invalid_argument&) {  // refused with a sentence
  }
}

}  // namespace
}  // namespace shardway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  shardway::read_or_refuse(shardway::read_topology_text, text);
  shardway::read_or_refuse(shardway::read_plan_text, text);
  return 0;
}
