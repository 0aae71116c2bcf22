#include "shm/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/kernels/box_dims.h"
#include "shm/kernels/copy.h"
#include "shm/kernels/kernels.h"

namespace shardway::shm {
namespace {

constexpr std::array<const char*, 15> kElementNames = {"bool", "u8",  "u16", "u32",       "u64",
                                                       "i8",   "i16", "i32", "i64",       "f16",
                                                       "bf16", "f32", "f64", "complex64", "complex128"};
constexpr std::array<int64_t, 15> kElementBytes = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
constexpr std::array<const char*, 7> kReductionNames = {"sum",  "min", "max", "product",
                                                        "band", "bor", "bxor"};
constexpr double kFactorLimit = 0x1.0p63;  // for integers, to which the factor is converted

[[noreturn]] void refuse(const Combine& how, const std::string& why) {
  throw std::invalid_argument(std::string("reduce: ") + kReductionNames.at(static_cast<size_t>(how.op)) +
                              " of " + kElementNames.at(static_cast<size_t>(how.element)) + " " + why);
}

bool is_integer(Element element) { return element >= Element::u8 && element <= Element::i64; }

constexpr size_t kFewOperands = 9;

// Whether a result of so many bytes goes past the cache. It does not if its lines are in the cache already.
bool streams(int64_t bytes, bool is_in_place) { return bytes >= kStreamFromBytes && !is_in_place; }

// The loop for a combination, and the combination that it is given.
struct Reducer {
  ReduceLoop loop = nullptr;
  Combine how = {};

  explicit Reducer(const Combine& asked) : how(asked) {
    const bool scaled = how.factor != 1;
    if (scaled && how.op != Reduction::sum) refuse(how, "takes no factor");
    if (how.divisor < 1) refuse(how, "cannot be divided by " + std::to_string(how.divisor));
    if (is_integer(how.element) && !(how.factor > -kFactorLimit && how.factor < kFactorLimit)) {
      refuse(how, "needs a factor that fits");
    }
    if (how.element == Element::boolean) how.factor = how.factor != 0 ? 1 : 0;
    loop = current_kernels().reduce_loop(how.element, how.op, scaled);
    if (loop == nullptr) refuse(how, "is not defined");
  }

  void run(std::byte* to, std::span<const std::byte* const> addends, int64_t count, bool streams) const {
    if (streams) return run_past_cache(to, addends, count);
    loop(to, addends.data(), static_cast<int64_t>(addends.size()), count, how);
  }

 private:
  // Works block by block: a block is combined, and written on while it is in the nearest cache.
  void run_past_cache(std::byte* to, std::span<const std::byte* const> addends, int64_t count) const {
    constexpr int64_t kBlockBytes = 4096;
    std::array<std::byte, kBlockBytes> block;
    SmallVector<const std::byte*, kFewOperands> from;
    for (const std::byte* addend : addends) from.push_back(addend);
    const int64_t bytes = count * bytes_of(how.element);
    for (int64_t done = 0; done < bytes;) {
      const int64_t now = std::min(kBlockBytes, bytes - done);
      loop(block.data(), from.data(), static_cast<int64_t>(from.size()), now / bytes_of(how.element), how);
      stream_bytes(to + done, block.data(), now);
      for (const std::byte*& addend : from) addend += now;
      done += now;
    }
  }
};

// The boxes of a reduction, walked from the outermost loop inwards. Operand 0 is the output.
class BoxReduction {
 public:
  BoxReduction(const Reducer& reducer, const BoxLoops& loops, std::byte* to,
               std::span<const StridedAddend> addends, bool streams)
      : reducer_(reducer),
        loops_(loops),
        to_(to),
        element_(bytes_of(reducer.how.element)),
        is_run_(loops.has_run(element_)),
        streams_(streams && row_elements() * element_ >= kStreamRowsFromBytes) {
    for (const StridedAddend& addend : addends) from_.push_back(addend.data);
    if (!is_run_) packed_.resize(static_cast<size_t>(loops_.operands() * kPackBytes));
  }

  void reduce_from(int64_t dim) {
    if (dim >= loops_.dims() - 1) return reduce_row();
    for (int64_t i = 0; i < loops_.extent(dim); ++i) {
      reduce_from(dim + 1);
      move(dim, 1);
    }
    move(dim, -loops_.extent(dim));
  }

 private:
  static constexpr int64_t kPackBytes = 4096;

  int64_t addends() const { return loops_.operands() - 1; }
  int64_t row_elements() const { return loops_.dims() > 0 ? loops_.extent(loops_.dims() - 1) : 1; }

  void move(int64_t dim, int64_t steps) {
    to_ += steps * loops_.stride(dim, 0);
    for (int64_t a = 0; a < addends(); ++a) from_[a] += steps * loops_.stride(dim, a + 1);
  }

  void reduce_row() {
    const int64_t count = row_elements();
    if (is_run_) return reducer_.run(to_, {from_.data(), from_.size()}, count, streams_);
    for (int64_t start = 0; start < count; start += kPackBytes / element_) {
      reduce_packed(start, std::min(count - start, kPackBytes / element_));
    }
  }

  // Elements that do not lie one after the other pass through packed memory, which stays in the cache.
  void reduce_packed(int64_t start, int64_t count) {
    const Kernels& kernels = current_kernels();
    const int64_t last = loops_.dims() - 1;
    SmallVector<const std::byte*, kFewOperands> from;
    for (int64_t a = 0; a < addends(); ++a) {
      const int64_t stride = loops_.stride(last, a + 1);
      std::byte* packed = packed_.data() + (a + 1) * kPackBytes;
      kernels.copy_rows(packed, from_[a] + start * stride, {count, element_, element_, stride});
      from.push_back(packed);
    }
    reducer_.loop(packed_.data(), from.data(), addends(), count, reducer_.how);
    const int64_t stride = loops_.stride(last, 0);
    kernels.copy_rows(to_ + start * stride, packed_.data(), {count, element_, stride, element_});
  }

  const Reducer& reducer_;
  const BoxLoops& loops_;
  std::byte* to_;
  SmallVector<const std::byte*, kFewOperands> from_;
  int64_t element_;
  bool is_run_;
  bool streams_;
  std::vector<std::byte> packed_;
};

}  // namespace

int64_t bytes_of(Element element) { return kElementBytes.at(static_cast<size_t>(element)); }

bool is_defined(Element element, Reduction op) {
  return kPortableKernels.reduce_loop(element, op, false) != nullptr;
}

void reduce(std::byte* to, std::span<const std::byte* const> addends, int64_t count, const Combine& how,
            int64_t whole_bytes) {
  const int64_t bytes = std::max(count * bytes_of(how.element), whole_bytes);
  const bool is_in_place = std::find(addends.begin(), addends.end(), to) != addends.end();
  Reducer(how).run(to, addends, count, streams(bytes, is_in_place));
}

void reduce_box(std::byte* to, std::span<const int64_t> to_strides, std::span<const StridedAddend> addends,
                std::span<const int64_t> extent, const Combine& how, int64_t whole_bytes) {
  const Reducer reducer(how);
  SmallVector<Strides, kFewOperands> strides;
  strides.push_back(to_strides);
  for (const StridedAddend& addend : addends) strides.push_back(addend.strides);
  const BoxLoops loops(extent, {strides.data(), strides.size()});
  if (loops.is_empty()) return;
  const bool is_in_place = std::any_of(addends.begin(), addends.end(),
                                       [&](const StridedAddend& addend) { return addend.data == to; });
  const int64_t bytes = std::max(loops.volume() * bytes_of(how.element), whole_bytes);
  BoxReduction(reducer, loops, to, addends, streams(bytes, is_in_place)).reduce_from(0);
}

}  // namespace shardway::shm
