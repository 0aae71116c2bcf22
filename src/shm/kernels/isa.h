// Which vector instructions the copy and reduce loops use.
#pragma once

#include <array>
#include <cstdint>

namespace shardway::shm {

enum class Isa : uint8_t { portable, avx2, avx512, neon };
inline constexpr std::array kEveryIsa = {Isa::portable, Isa::avx2, Isa::avx512, Isa::neon};

// Whether this build has loops for it and this machine runs them.
bool supports(Isa isa);

// What the loops use: the widest that is supported, unless a test forced another.
Isa current_isa();

// For tests and benches; applies to the whole process. Throws std::invalid_argument if it is not supported.
void force_isa(Isa isa);

}  // namespace shardway::shm
