#include "shm/reduce.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/box_dims.h"
#include "shm/kernels.h"

namespace shardway::shm {
namespace {

constexpr std::array<const char*, 15> kElementNames = {"bool", "u8",  "u16", "u32",       "u64",
                                                       "i8",   "i16", "i32", "i64",       "f16",
                                                       "bf16", "f32", "f64", "complex64", "complex128"};
constexpr std::array<int64_t, 15> kElementBytes = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
constexpr std::array<const char*, 7> kReductionNames = {"sum",  "min", "max", "product",
                                                        "band", "bor", "bxor"};
constexpr double kFactorLimit = 0x1.0p63;  // of integers, which convert from it

[[noreturn]] void refuse(const Combine& how, const std::string& why) {
  throw std::invalid_argument(std::string("reduce: ") + kReductionNames.at(static_cast<size_t>(how.op)) +
                              " of " + kElementNames.at(static_cast<size_t>(how.element)) + " " + why);
}

bool is_integer(Element element) { return element >= Element::u8 && element <= Element::i64; }

// The loop, and what it is to be told.
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
};

// The boxes of a reduction, walked from the outermost loop inwards. Operand 0 is the output.
class BoxReduction {
 public:
  BoxReduction(const Reducer& reducer, BoxLoops loops, std::vector<std::byte*> at)
      : reducer_(reducer),
        loops_(std::move(loops)),
        at_(std::move(at)),
        element_(bytes_of(reducer.how.element)) {
    const int64_t last = loops_.dims() - 1;
    for (int64_t o = 0; last >= 0 && o < loops_.operands; ++o) {
      is_run_ = is_run_ && loops_.stride(last, o) == element_;
    }
    if (!is_run_) packed_.resize(static_cast<size_t>(loops_.operands * kPackBytes));
  }

  void reduce_from(int64_t dim) {
    if (dim >= loops_.dims() - 1) return reduce_row();
    for (int64_t i = 0; i < loops_.extent[dim]; ++i) {
      reduce_from(dim + 1);
      move(dim, 1);
    }
    move(dim, -loops_.extent[dim]);
  }

 private:
  static constexpr int64_t kPackBytes = 4096;

  void move(int64_t dim, int64_t steps) {
    for (int64_t o = 0; o < loops_.operands; ++o) at_[o] += steps * loops_.stride(dim, o);
  }

  void reduce_row() {
    const int64_t count = loops_.dims() > 0 ? loops_.extent.back() : 1;
    if (is_run_) return reducer_.loop(at_[0], at_.data() + 1, loops_.operands - 1, count, reducer_.how);
    for (int64_t start = 0; start < count; start += kPackBytes / element_) {
      reduce_packed(start, std::min(count - start, kPackBytes / element_));
    }
  }

  // Elements that do not lie one after the other pass through packed memory, which stays in the cache.
  void reduce_packed(int64_t start, int64_t count) {
    const Kernels& kernels = current_kernels();
    std::vector<const std::byte*> from(static_cast<size_t>(loops_.operands - 1));
    for (int64_t o = 1; o < loops_.operands; ++o) {
      const int64_t stride = loops_.stride(loops_.dims() - 1, o);
      std::byte* packed = packed_.data() + o * kPackBytes;
      kernels.copy_rows(packed, at_[o] + start * stride, {count, element_, element_, stride});
      from[o - 1] = packed;
    }
    reducer_.loop(packed_.data(), from.data(), loops_.operands - 1, count, reducer_.how);
    const int64_t stride = loops_.stride(loops_.dims() - 1, 0);
    kernels.copy_rows(at_[0] + start * stride, packed_.data(), {count, element_, stride, element_});
  }

  const Reducer& reducer_;
  BoxLoops loops_;
  std::vector<std::byte*> at_;
  int64_t element_;
  bool is_run_ = true;
  std::vector<std::byte> packed_;
};

}  // namespace

int64_t bytes_of(Element element) { return kElementBytes.at(static_cast<size_t>(element)); }

bool is_defined(Element element, Reduction op) {
  return kPortableKernels.reduce_loop(element, op, false) != nullptr;
}

void reduce(std::byte* to, std::span<const std::byte* const> addends, int64_t count, const Combine& how) {
  const Reducer reducer(how);
  reducer.loop(to, addends.data(), static_cast<int64_t>(addends.size()), count, reducer.how);
}

void reduce_box(std::byte* to, std::span<const int64_t> to_strides, std::span<const StridedAddend> addends,
                std::span<const int64_t> extent, const Combine& how) {
  const Reducer reducer(how);
  std::vector<std::span<const int64_t>> strides = {to_strides};
  std::vector<std::byte*> at = {to};
  for (const StridedAddend& addend : addends) {
    strides.push_back(addend.strides);
    at.push_back(const_cast<std::byte*>(addend.data));  // only operand 0 is written
  }
  BoxLoops loops = box_loops(extent, strides);
  if (!loops.is_empty) BoxReduction(reducer, std::move(loops), std::move(at)).reduce_from(0);
}

}  // namespace shardway::shm
