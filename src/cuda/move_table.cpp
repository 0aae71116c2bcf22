#include "cuda/move_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

namespace shardway::cuda {
namespace {

constexpr int64_t kMostUnits = int64_t{1}
                               << 30;  // indices of units, and of those a few steps on, fit 32 bits
constexpr int64_t kWidest = 16;

// A box as the loops of a copy: one extent per loop, the innermost last, and a stride per loop and operand.
// The first operand is the destination.
struct Loops {
  std::vector<int64_t> extent;
  std::vector<StridedBox> operands;
};

// Dims in the order in which the destination lies in memory, without those of one element.
Loops ordered(const BoxMove& move) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < move.extent.size(); ++d) {
    if (move.extent[d] != 1) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
    return std::abs(move.to.strides[a]) > std::abs(move.to.strides[b]);
  });
  const auto picked = [&](const std::vector<int64_t>& numbers) {
    std::vector<int64_t> chosen;
    for (const size_t d : dims) chosen.push_back(numbers[d]);
    return chosen;
  };
  Loops loops{.extent = picked(move.extent), .operands = {{move.to.address, picked(move.to.strides)}}};
  for (const StridedBox& box : move.from) loops.operands.push_back({box.address, picked(box.strides)});
  return loops;
}

bool continues(const Loops& loops, size_t outer) {
  return std::all_of(loops.operands.begin(), loops.operands.end(), [&](const StridedBox& box) {
    return box.strides[outer] == loops.extent[outer + 1] * box.strides[outer + 1];
  });
}

void erase_loop(Loops& loops, size_t d) {
  const auto at = static_cast<std::ptrdiff_t>(d);
  loops.extent.erase(loops.extent.begin() + at);
  for (StridedBox& box : loops.operands) box.strides.erase(box.strides.begin() + at);
}

// Makes one loop of two where every operand goes on from the one to the other without a gap.
void merge(Loops& loops) {
  for (size_t d = loops.extent.size(); d-- > 1;) {
    if (!continues(loops, d - 1)) continue;
    loops.extent[d] *= loops.extent[d - 1];
    erase_loop(loops, d - 1);
  }
}

// Makes runs of bytes the innermost loop: whole elements if they lie apart.
void count_bytes(Loops& loops, int64_t element_bytes) {
  const bool has_runs = !loops.extent.empty() &&
                        std::all_of(loops.operands.begin(), loops.operands.end(), [&](const StridedBox& box) {
                          return box.strides.back() == element_bytes;
                        });
  if (!has_runs) {
    loops.extent.push_back(1);
    for (StridedBox& box : loops.operands) box.strides.push_back(0);
  }
  loops.extent.back() *= element_bytes;
}

// The widest unit that divides the runs, and where they begin.
int64_t unit_of(const Loops& loops, int64_t least, bool only_widest) {
  int64_t all = loops.extent.back();
  for (const StridedBox& box : loops.operands) {
    all |= static_cast<int64_t>(box.address);
    for (size_t d = 0; d + 1 < box.strides.size(); ++d) all |= box.strides[d];
  }
  int64_t unit = kWidest;
  while (all % unit != 0) unit /= 2;
  return only_widest && unit != kWidest ? least : unit;
}

void count_units(Loops& loops, int64_t unit) {
  loops.extent.back() /= unit;
  for (StridedBox& box : loops.operands) box.strides.back() = unit;
  if (loops.extent.back() == 1 && loops.extent.size() > 1) erase_loop(loops, loops.extent.size() - 1);
}

int64_t volume_of(const Loops& loops) {
  return std::accumulate(loops.extent.begin(), loops.extent.end(), int64_t{1}, std::multiplies<>());
}

// The half of the outermost loop that begins at `begin`.
Loops part_of(const Loops& loops, int64_t begin, int64_t extent) {
  Loops part = loops;
  part.extent.front() = extent;
  for (StridedBox& box : part.operands)
    box.address += static_cast<DeviceAddress>(begin * box.strides.front());
  return part;
}

// Fills tables of one width.
class Writer {
 public:
  Writer(int64_t unit_bytes, int64_t divisor) : unit_bytes_(unit_bytes), divisor_(divisor) {}

  // Cuts what is too large or has too many loops for one job.
  void add(const Loops& loops) {
    if (loops.extent.size() > size_t{kJobDims}) {
      for (int64_t i = 0; i < loops.extent.front(); ++i) {
        Loops inner = part_of(loops, i, 1);
        erase_loop(inner, 0);
        add(inner);
      }
      return;
    }
    if (volume_of(loops) > kMostUnits) {
      if (loops.extent.front() == 1) {
        Loops inner = loops;
        erase_loop(inner, 0);
        return add(inner);
      }
      const int64_t half = loops.extent.front() / 2;
      add(part_of(loops, 0, half));
      return add(part_of(loops, half, loops.extent.front() - half));
    }
    write(loops);
  }

  std::vector<MoveTable> take() {
    finish();
    return std::move(tables_);
  }

 private:
  static std::array<int64_t, kJobDims> reversed(const std::vector<int64_t>& strides) {
    std::array<int64_t, kJobDims> from_innermost = {};
    std::copy(strides.rbegin(), strides.rend(), from_innermost.begin());
    return from_innermost;
  }

  void write(const Loops& loops) {
    const size_t sources = loops.operands.size() - 1;
    const size_t bytes = sizeof(MoveJob) + sources * sizeof(MoveJobSource);
    if (tables_.empty() || used_ + bytes > size_t{kTableBytes} || tables_.back().jobs == kMostJobs) begin();
    MoveTable& table = tables_.back();
    MoveJob job{.to = loops.operands[0].address,
                .units = static_cast<uint32_t>(volume_of(loops)),
                .dims = static_cast<uint32_t>(loops.extent.size()),
                .sources = static_cast<uint32_t>(sources),
                .stride = reversed(loops.operands[0].strides)};
    for (size_t d = 0; d < loops.extent.size(); ++d)
      job.extent[d] = static_cast<uint32_t>(loops.extent[loops.extent.size() - 1 - d]);
    head_.offset[static_cast<size_t>(table.jobs++)] = static_cast<uint32_t>(used_);
    table.most_units = std::max(table.most_units, job.units);
    append(table, &job, sizeof(job));
    for (size_t s = 1; s <= sources; ++s) {
      const MoveJobSource source{.from = loops.operands[s].address,
                                 .stride = reversed(loops.operands[s].strides)};
      append(table, &source, sizeof(source));
    }
  }

  void begin() {
    finish();
    tables_.emplace_back().unit_bytes = static_cast<int>(unit_bytes_);
    head_ = {.divisor = static_cast<double>(divisor_), .divisor_f32 = static_cast<float>(divisor_)};
    used_ = sizeof(TableHead);
  }

  void finish() {
    if (tables_.empty()) return;
    std::memcpy(tables_.back().bytes.data(), &head_, sizeof(head_));
    tables_.back().used_bytes = static_cast<int>(used_);
  }

  void append(MoveTable& table, const void* data, size_t bytes) {
    std::memcpy(table.bytes.data() + used_, data, bytes);
    used_ += bytes;
  }

  int64_t unit_bytes_;
  int64_t divisor_;
  std::vector<MoveTable> tables_;
  TableHead head_ = {};
  size_t used_ = 0;
};

bool is_empty(const BoxMove& move) {
  return std::find(move.extent.begin(), move.extent.end(), 0) != move.extent.end();
}

// The same memory, read and written: two ranks that gather in place, say.
bool is_onto_itself(const BoxMove& move) {
  return move.from.size() == 1 && move.from[0].address == move.to.address &&
         move.from[0].strides == move.to.strides;
}

}  // namespace

std::vector<MoveTable> tables_of(std::span<const BoxMove> moves, const std::optional<shm::Combine>& how) {
  std::map<int64_t, Writer> writers;  // by unit
  for (const BoxMove& move : moves) {
    if (move.from.size() > size_t{kMostSources})
      throw std::invalid_argument("a sum of " + std::to_string(move.from.size()) + " addends: at most " +
                                  std::to_string(kMostSources) + " are combined on a GPU");
    if (is_empty(move) || (!how && is_onto_itself(move))) continue;
    Loops loops = ordered(move);
    merge(loops);
    count_bytes(loops, move.element_bytes);
    const int64_t unit = unit_of(loops, move.element_bytes, how.has_value());
    count_units(loops, unit);
    writers.try_emplace(unit, unit, how ? how->divisor : 1).first->second.add(loops);
  }
  std::vector<MoveTable> tables;
  for (auto& [unit, writer] : writers) {
    for (MoveTable& table : writer.take()) tables.push_back(table);
  }
  return tables;
}

}  // namespace shardway::cuda
