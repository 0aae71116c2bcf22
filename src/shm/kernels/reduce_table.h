// Which loop reduces which elements. Sums, products and bit operations of signed integers use the loops of
// unsigned ones.
#pragma once

#include "shm/kernels/reduce_loops.h"

namespace shardway::shm {

template <class L, int lanes_per_element = 1, class Plus = Sum>
ReduceLoop sum_loop(bool scaled) {
  return scaled ? reduce_run<L, Plus, true, lanes_per_element>
                : reduce_run<L, Plus, false, lanes_per_element>;
}

template <class Isa, int element_bytes>
ReduceLoop bits_loop(Reduction op) {
  using Bytes = Lanes<Isa, uint8_t>;
  switch (op) {
    case Reduction::band:
      return reduce_run<Bytes, And, false, element_bytes>;
    case Reduction::bor:
      return reduce_run<Bytes, Or, false, element_bytes>;
    default:
      return reduce_run<Bytes, Xor, false, element_bytes>;
  }
}

template <class Isa, class T>
ReduceLoop integer_loop(Reduction op, bool scaled) {
  using Unsigned = Lanes<Isa, std::make_unsigned_t<T>>;
  switch (op) {
    case Reduction::sum:
      return sum_loop<Unsigned>(scaled);
    case Reduction::product:
      return reduce_run<Unsigned, Product, false>;
    case Reduction::min:
      return reduce_run<Lanes<Isa, T>, Min, false>;
    case Reduction::max:
      return reduce_run<Lanes<Isa, T>, Max, false>;
    default:
      return bits_loop<Isa, sizeof(T)>(op);
  }
}

template <class Isa>
ReduceLoop boolean_loop(Reduction op, bool scaled) {
  using L = BooleanLanes<Isa>;
  switch (op) {
    case Reduction::product:
    case Reduction::min:
    case Reduction::band:
      return reduce_run<L, And, false>;
    case Reduction::bxor:
      return reduce_run<L, Xor, false>;
    default:
      return scaled ? reduce_run<L, Or, true> : reduce_run<L, Or, false>;
  }
}

template <class L, class Plus = Sum, class Times = Product>
ReduceLoop float_loop(Reduction op, bool scaled) {
  switch (op) {
    case Reduction::sum:
      return sum_loop<L, 1, Plus>(scaled);
    case Reduction::product:
      return reduce_run<L, Times, false>;
    case Reduction::min:
      return reduce_run<L, Min, false>;
    case Reduction::max:
      return reduce_run<L, Max, false>;
    default:
      return nullptr;
  }
}

template <class L>
ReduceLoop complex_loop(Reduction op, bool scaled) {
  if (op == Reduction::sum) return sum_loop<L, 2>(scaled);
  return op == Reduction::product ? reduce_run<L, ComplexProduct, false, 2> : nullptr;
}

template <class Isa>
ReduceLoop reduce_loop(Element element, Reduction op, bool scaled) {
  switch (element) {
    case Element::boolean:
      return boolean_loop<Isa>(op, scaled);
    case Element::u8:
      return integer_loop<Isa, uint8_t>(op, scaled);
    case Element::u16:
      return integer_loop<Isa, uint16_t>(op, scaled);
    case Element::u32:
      return integer_loop<Isa, uint32_t>(op, scaled);
    case Element::u64:
      return integer_loop<Isa, uint64_t>(op, scaled);
    case Element::i8:
      return integer_loop<Isa, int8_t>(op, scaled);
    case Element::i16:
      return integer_loop<Isa, int16_t>(op, scaled);
    case Element::i32:
      return integer_loop<Isa, int32_t>(op, scaled);
    case Element::i64:
      return integer_loop<Isa, int64_t>(op, scaled);
    case Element::f16:
      return float_loop<F16Lanes<Isa>>(op, scaled);
    case Element::bf16:
      return float_loop<Bf16Lanes<Isa>, SumWithOneNan, ProductWithOneNan>(op, scaled);
    case Element::f32:
      return float_loop<Lanes<Isa, float>>(op, scaled);
    case Element::f64:
      return float_loop<Lanes<Isa, double>>(op, scaled);
    case Element::complex64:
      return complex_loop<Lanes<Isa, float>>(op, scaled);
    case Element::complex128:
      return complex_loop<Lanes<Isa, double>>(op, scaled);
  }
  return nullptr;
}

}  // namespace shardway::shm
