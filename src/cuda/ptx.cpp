#include "cuda/ptx.h"

#include <sstream>
#include <stdexcept>
#include <vector>

#include "cuda/move_table.h"

namespace shardway::cuda {
namespace {

using shm::Combine;
using shm::Element;
using shm::Reduction;

// What the kernels have in common: which units a thread moves, and where they lie.
class Kernel {
 public:
  Kernel(int units_at_once, int table_bytes) : units_(units_at_once) {
    line(".version 7.0");
    line(".target sm_70");
    line(".address_size 64");
    text_ << ".visible .entry " << kEntry << "(.param .align 16 .b8 table[" << table_bytes << "])\n{\n";
    line(".reg .pred done, more, one, nan, bigger;");
    line(".reg .b32 number, blocks, threads, thread, unit, step, units, dims, sources;");
    line(".reg .b64 base, job, source, wide;");
    for (int d = 0; d < kJobDims; ++d) {
      line(".reg .b32 extent", d, ", quotient", d, ";");
      line(".reg .b64 stride", d, ";");
    }
    for (int u = 0; u < units_; ++u) {
      line(".reg .pred in", u, ";");
      line(".reg .b64 at", u, ";");
      for (int d = 0; d < kJobDims; ++d) line(".reg .b32 place", u, "_", d, ";");
    }
  }

  template <class... Words>
  void line(const Words&... words) {
    text_ << "  ";
    (text_ << ... << words);
    text_ << "\n";
  }

  int units() const { return units_; }

  void read_job() {
    line("mov.u64 base, table;");
    line("mov.u32 number, %ctaid.y;");
    line("mul.wide.u32 job, number, 4;");
    line("add.u64 job, job, base;");
    line("ld.param.u32 number, [job];");
    line("cvt.u64.u32 job, number;");
    line("add.u64 job, job, base;");
    line("ld.param.u32 units, [job+8];");
    line("ld.param.u32 dims, [job+12];");
    for (int d = 0; d < kJobDims; ++d) line("ld.param.u32 extent", d, ", [job+", 16 + 4 * d, "];");
    line("ld.param.u32 sources, [job+32];");
    line("mov.u32 number, %ctaid.x;");
    line("mov.u32 threads, %ntid.x;");
    line("mov.u32 thread, %tid.x;");
    line("mov.u32 blocks, %nctaid.x;");
    line("mad.lo.u32 unit, number, threads, thread;");
    line("mul.lo.u32 step, blocks, threads;");
  }

  // Runs what `body` writes for every unit of the thread, some at once.
  template <class Body>
  void for_units(Body&& body) {
    text_ << "next:\n";
    line("setp.ge.u32 done, unit, units;");
    line("@done bra end;");
    place_units();
    body();
    line("mad.lo.u32 unit, step, ", units_, ", unit;");
    line("bra next;");
    text_ << "end:\n  ret;\n}\n";
  }

  // Sets at0, at1, … to where the units lie in an operand. `where` says where the table has its address and,
  // behind it, its strides.
  void find_units(const std::string& where, const std::string& strides) {
    const std::string found = label();
    line("ld.param.u64 wide, [", where, "];");
    for (int u = 0; u < units_; ++u) line("mov.u64 at", u, ", wide;");
    for (int d = 0; d < kJobDims; ++d) {
      line("ld.param.u64 stride", d, ", [", strides, "+", 8 * d, "];");
      for (int u = 0; u < units_; ++u) {
        line("cvt.u64.u32 wide, place", u, "_", d, ";");
        line("mad.lo.s64 at", u, ", wide, stride", d, ", at", u, ";");
      }
      if (d + 1 == kJobDims) break;
      line("setp.eq.u32 done, dims, ", d + 1, ";");
      line("@done bra ", found, ";");
    }
    text_ << found << ":\n";
  }

  std::string label() { return "label" + std::to_string(labels_++); }
  void mark(const std::string& label) { text_ << label << ":\n"; }
  std::string text() const { return text_.str(); }

 private:
  // Sets in0, … to whether there is such a unit, and place0_0, … to its coordinates.
  void place_units() {
    for (int u = 0; u < units_; ++u) {
      line("mad.lo.u32 place", u, "_0, step, ", u, ", unit;");
      line("setp.lt.u32 in", u, ", place", u, "_0, units;");
      for (int d = 1; d < kJobDims; ++d) line("mov.u32 place", u, "_", d, ", 0;");
    }
    const std::string placed = label();
    for (int d = 0; d + 1 < kJobDims; ++d) {
      line("setp.eq.u32 done, dims, ", d + 1, ";");
      line("@done bra ", placed, ";");
      for (int u = 0; u < units_; ++u) {
        line("div.u32 quotient", d, ", place", u, "_", d, ", extent", d, ";");
        line("mov.u32 place", u, "_", d + 1, ", quotient", d, ";");
        line("mul.lo.u32 quotient", d, ", quotient", d, ", extent", d, ";");
        line("sub.u32 place", u, "_", d, ", place", u, "_", d, ", quotient", d, ";");
      }
    }
    mark(placed);
  }

  int units_;
  int labels_ = 0;
  std::ostringstream text_;
};

// The registers of one unit in memory's form: "{word0_0, word0_1}" and the type by which it is read and
// written at once.
struct Words {
  int count;
  int bytes;  // of each
  const char* type;

  static Words of(int unit_bytes, int element_bytes) {
    if (unit_bytes == 16) return element_bytes == 8 ? Words{2, 8, ".v2.b64"} : Words{4, 4, ".v4.b32"};
    switch (unit_bytes) {
      case 8:
        return {1, 8, ".b64"};
      case 4:
        return {1, 4, ".b32"};
      case 2:
        return {1, 4, ".u16"};
      default:
        return {1, 4, ".u8"};
    }
  }

  std::string list(int unit) const {
    std::string all;
    for (int w = 0; w < count; ++w)
      all += (w > 0 ? ", " : "") + ("word" + std::to_string(unit)) + "_" + std::to_string(w);
    return count > 1 ? "{" + all + "}" : all;
  }

  void declare(Kernel& kernel) const {
    for (int u = 0; u < kernel.units(); ++u) {
      for (int w = 0; w < count; ++w) kernel.line(".reg .b", 8 * bytes, " word", u, "_", w, ";");
    }
  }

  void load(Kernel& kernel) const {
    for (int u = 0; u < kernel.units(); ++u)
      kernel.line("@in", u, " ld.global", type, " ", list(u), ", [at", u, "];");
  }

  void store(Kernel& kernel) const {
    for (int u = 0; u < kernel.units(); ++u)
      kernel.line("@in", u, " st.global", type, " [at", u, "], ", list(u), ";");
  }
};

// The numbers in the words of a unit, as the registers in which they are combined.
class UnitNumbers {
 public:
  UnitNumbers(Kernel& kernel, const Combine& how, int unit_bytes)
      : kernel_(kernel),
        how_(how),
        bytes_(static_cast<int>(shm::bytes_of(how.element))),
        words_(Words::of(unit_bytes, bytes_)),
        count_(unit_bytes / bytes_) {
    words_.declare(kernel_);
    kernel_.line(".reg .b16 half0, half1;");
    kernel_.line(".reg .b32 bits, odd, rounded;");
    kernel_.line(".reg .", type(), " sum, other, divisor;");
    for (int u = 0; u < kernel_.units(); ++u) {
      for (int i = 0; i < count_; ++i)
        kernel_.line(".reg .", type(), " ", total(u, i), ", ", number(u, i), ";");
    }
  }

  // Reads an operand at `source` into the registers of the totals, or of the numbers to be added.
  void read(bool into_totals) {
    kernel_.find_units("source", "source+8");
    words_.load(kernel_);
    for (int u = 0; u < kernel_.units(); ++u) {
      for (int i = 0; i < count_; ++i) unpack(u, i, into_totals ? total(u, i) : number(u, i));
    }
  }

  void add() {
    for (int u = 0; u < kernel_.units(); ++u) {
      for (int i = 0; i < count_; ++i) combine(total(u, i), number(u, i));
    }
  }

  void divide() {
    if (how_.divisor == 1 || !is_float()) return;
    kernel_.line("ld.param.", type(), " divisor, [base+", type() == "f64" ? 128 : 136, "];");
    for (int u = 0; u < kernel_.units(); ++u) {
      for (int i = 0; i < count_; ++i)
        kernel_.line("div.rn.", type(), " ", total(u, i), ", ", total(u, i), ", divisor;");
    }
  }

  void write() {
    for (int u = 0; u < kernel_.units(); ++u) {
      for (int w = 0; w < words_.count; ++w) pack(u, w);
    }
    kernel_.find_units("job", "job+40");
    words_.store(kernel_);
  }

 private:
  bool is_float() const { return type() == "f32" || type() == "f64"; }

  // Of the registers in which numbers are combined.
  std::string type() const {
    switch (how_.element) {
      case Element::f16:
      case Element::bf16:
      case Element::f32:
        return "f32";
      case Element::f64:
        return "f64";
      case Element::i8:
      case Element::i16:
      case Element::i32:
        return "s32";
      case Element::i64:
        return "s64";
      case Element::u64:
        return "u64";
      default:
        return "u32";
    }
  }

  static std::string total(int u, int i) { return "total" + std::to_string(u) + "_" + std::to_string(i); }
  static std::string number(int u, int i) { return "number" + std::to_string(u) + "_" + std::to_string(i); }
  static std::string word(int u, int w) { return "word" + std::to_string(u) + "_" + std::to_string(w); }

  void unpack(int u, int i, const std::string& to) {
    const int per_word = words_.bytes / bytes_;
    const std::string from = word(u, count_ == 1 ? 0 : i / per_word);
    const int shift = count_ == 1 ? 0 : i % per_word * bytes_ * 8;
    switch (how_.element) {
      case Element::f16:
        kernel_.line("mov.b32 {half0, half1}, ", from, ";");
        return kernel_.line("cvt.f32.f16 ", to, ", ", shift == 0 ? "half0;" : "half1;");
      case Element::bf16:
        kernel_.line(shift == 0 ? "shl.b32 bits, " : "and.b32 bits, ", from,
                     shift == 0 ? ", 16;" : ", 0xffff0000;");
        return kernel_.line("mov.b32 ", to, ", bits;");
      default:
        break;
    }
    if (bytes_ == 8) return kernel_.line("mov.b64 ", to, ", ", from, ";");
    if (bytes_ == 4) return kernel_.line("mov.b32 ", to, ", ", from, ";");
    kernel_.line("bfe.", type(), " ", to, ", ", from, ", ", shift, ", ", 8 * bytes_, ";");
  }

  void pack(int u, int w) {
    const int per_word = count_ == 1 ? 1 : words_.bytes / bytes_;
    const std::string to = word(u, w);
    if (bytes_ == 8) return kernel_.line("mov.b64 ", to, ", ", total(u, w), ";");
    if (bytes_ == 4) return kernel_.line("mov.b32 ", to, ", ", total(u, w), ";");
    kernel_.line("mov.b32 ", to, ", 0;");
    for (int i = 0; i < per_word; ++i) {
      const std::string from = total(u, w * per_word + i);
      if (how_.element == Element::f16) {
        kernel_.line("cvt.rn.f16.f32 half0, ", from, ";");
        kernel_.line("cvt.u32.u16 bits, half0;");
      } else if (how_.element == Element::bf16) {
        round_to_bf16(from);
      } else {
        kernel_.line("mov.b32 bits, ", from, ";");
      }
      kernel_.line("bfi.b32 ", to, ", bits, ", to, ", ", 8 * bytes_ * i, ", ", 8 * bytes_, ";");
    }
  }

  // To the nearest, ties to even; a NaN has one form. GPUs older than sm_80 have no instruction for it.
  void round_to_bf16(const std::string& from) {
    kernel_.line("mov.b32 bits, ", from, ";");
    kernel_.line("setp.nan.f32 nan, ", from, ", ", from, ";");
    kernel_.line("bfe.u32 odd, bits, 16, 1;");
    kernel_.line("add.u32 rounded, bits, 0x7fff;");
    kernel_.line("add.u32 rounded, rounded, odd;");
    kernel_.line("shr.u32 rounded, rounded, 16;");
    kernel_.line("selp.b32 bits, 0x7fc0, rounded, nan;");
  }

  void combine(const std::string& total, const std::string& number) {
    const bool is_bool = how_.element == Element::boolean;
    const std::string ends = total + ", " + total + ", " + number + ";";
    switch (how_.op) {
      case Reduction::min:
      case Reduction::max:
        return is_float() ? keep_bigger(total, number)
                          : kernel_.line(how_.op == Reduction::min ? "min." : "max.", type(), " ", ends);
      case Reduction::product:
        if (is_bool) return kernel_.line("and.b32 ", ends);
        return kernel_.line(is_float() ? "mul.rn." : "mul.lo.", type(), " ", ends);
      default:
        if (is_bool) return kernel_.line("or.b32 ", ends);
        return kernel_.line(is_float() ? "add.rn." : "add.", type(), " ", ends);
    }
  }

  // A NaN stays: the first one.
  void keep_bigger(const std::string& total, const std::string& number) {
    const bool is_min = how_.op == Reduction::min;
    kernel_.line("setp.", is_min ? "lt." : "gt.", type(), " bigger, ", number, ", ", total, ";");
    kernel_.line("selp.", type(), " sum, ", number, ", ", total, ", bigger;");
    kernel_.line("setp.nan.", type(), " nan, ", number, ", ", number, ";");
    kernel_.line("selp.", type(), " sum, ", number, ", sum, nan;");
    kernel_.line("setp.nan.", type(), " nan, ", total, ", ", total, ";");
    kernel_.line("selp.", type(), " ", total, ", ", total, ", sum, nan;");
  }

  Kernel& kernel_;
  Combine how_;
  int bytes_;
  Words words_;
  int count_;  // numbers of a unit
};

}  // namespace

std::string copy_text(int unit_bytes, int table_bytes) {
  Kernel kernel(kUnitsAtOnce, table_bytes);
  const Words words = Words::of(unit_bytes, unit_bytes == 8 ? 8 : 4);
  words.declare(kernel);
  kernel.read_job();
  kernel.for_units([&] {
    kernel.find_units("job+72", "job+80");
    words.load(kernel);
    kernel.find_units("job", "job+40");
    words.store(kernel);
  });
  return kernel.text();
}

bool has_combine_text(const Combine& how) {
  const bool is_known_op = how.op == Reduction::sum || how.op == Reduction::product ||
                           how.op == Reduction::min || how.op == Reduction::max;
  const bool is_complex = how.element == Element::complex64 || how.element == Element::complex128;
  return is_known_op && !is_complex && how.factor == 1;
}

std::string combine_text(const Combine& how, int unit_bytes, int table_bytes) {
  if (!has_combine_text(how)) throw std::invalid_argument("no kernel combines such numbers");
  Kernel kernel(unit_bytes == 16 ? 2 : kUnitsAtOnce, table_bytes);
  UnitNumbers numbers(kernel, how, unit_bytes);
  kernel.read_job();
  kernel.for_units([&] {
    kernel.line("add.u64 source, job, 72;");
    kernel.line("mov.u32 number, 1;");
    numbers.read(/*into_totals=*/true);
    const std::string again = kernel.label();
    const std::string all = kernel.label();
    kernel.mark(again);
    kernel.line("setp.ge.u32 done, number, sources;");
    kernel.line("@done bra ", all, ";");
    kernel.line("add.u64 source, source, 40;");
    kernel.line("add.u32 number, number, 1;");
    numbers.read(/*into_totals=*/false);
    numbers.add();
    kernel.line("bra ", again, ";");
    kernel.mark(all);
    numbers.divide();
    numbers.write();
  });
  return kernel.text();
}

}  // namespace shardway::cuda
