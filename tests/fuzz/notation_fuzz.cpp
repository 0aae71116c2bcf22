// Any text is read, or refused by std::invalid_argument: meshes, shapes, placements, bytes and sweeps, chosen
// by the first byte. What is read of placements is written and read again.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cli/notation.h"

namespace shardway::cli {
namespace {

constexpr int64_t kTensorDims = 3;

void read_and_write_placements(const std::string& text) {
  const OrderedPlacements read = read_placements(text, kTensorDims);
  const Mesh mesh(std::vector<int64_t>(read.placements.size(), 1));
  const Layout layout({8, 4, 6}, DType::f32, mesh, read.placements, read.order);
  const OrderedPlacements again = read_placements(placements_text(layout), kTensorDims);
  if (!(layout == layout.with(again.placements, again.order))) std::abort();
}

void read_any(char what, const std::string& text) {
  switch (what) {
    case 'm':
      read_mesh(text);
      break;
    case 's':
      read_shape(text);
      break;
    case 'p':
      read_and_write_placements(text);
      break;
    case 'b':
      read_bytes(text);
      break;
    case 'w':
      read_sweep(text);
      break;
    case 'n':
      read_count(text, "a count");
      break;
    default:
      break;
  }
}

}  // namespace
}  // namespace shardway::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    shardway::cli::read_any(text[0], text.substr(1));
  } catch (const std::invalid_argument&) {  // refused with a sentence
  }
  return 0;
}
