// Collectives between processes on plain memory, for programs without torch. How groups in shared memory are
// tuned, and why.
#pragma once

#include <chrono>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardway/join.h"
#include "shardway/message_engine.h"

namespace [[gnu::visibility("default")]] shardway {

// How elements that meet are combined; avg is a sum divided by the number of ranks.
enum class Combination : uint8_t { sum, avg, min, max, product, band, bor, bxor };

// Numbers that can be combined.
enum class Number : uint8_t { u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, complex64, complex128 };

template <class T>
constexpr Number number_of() {
  if constexpr (std::is_same_v<T, float>) return Number::f32;
  if constexpr (std::is_same_v<T, double>) return Number::f64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return Number::complex64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return Number::complex128;
  constexpr int kLog = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  if constexpr (std::is_integral_v<T>)
    return static_cast<Number>(kLog + (std::is_signed_v<T> ? static_cast<int>(Number::i8) : 0));
}

// Ranks that share a host, one process each, or ranks of several hosts with an engine between them. Calls are
// collective, made by one thread at a time, in the same order on every rank, with the same sizes. A call
// throws std::runtime_error naming the peer that died, left or did not come, and then so does every later
// call. It throws std::invalid_argument if sizes do not fit the memory.
class HostGroup {
 public:
  // Collective. Throws std::runtime_error, on every rank, if the ranks do not share a host or one does not
  // come; std::invalid_argument if the options or the environment are invalid.
  static HostGroup join(const JoinOptions& options = {});

  // The same for the ranks of an engine, as shardway/mpi_engine.h makes it. They may be on several hosts:
  // what several ranks of a host want crosses once, and addends are combined host by host. `timeout` is how
  // long a rank waits for another, now and in every call.
  static HostGroup join_hosts(const EngineMaker& make,
                              std::chrono::milliseconds timeout = std::chrono::minutes(30));

  // Returns a group of the ranks that gave the same color, ordered by key and, if keys are equal, by their
  // rank here. Collective. Throws std::invalid_argument, on every rank, if a color is negative.
  HostGroup split(int64_t color, int64_t key = 0) const;

  // Returns a group of the ranks that call this, in their order; this group is over on every rank. For ranks
  // of which some have died, or do not come: such ranks are left out when the others have waited for the
  // timeout (without one: the group's own, at most 10 s). Ranks may die meanwhile. A rank that comes too late
  // gets a std::runtime_error that names those who went on.
  HostGroup shrink(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;

  int64_t rank() const;
  int64_t size() const;

  // Returns memory of this rank that the others can read: data sent from there is not copied in between. The
  // memory is freed with the last copy of the pointer.
  template <class T>
  std::shared_ptr<T[]> allocate(int64_t count) const {
    const auto bytes = allocate_bytes(count * int64_t{sizeof(T)});
    return {bytes, static_cast<T*>(bytes.get())};
  }

  // The parts of all ranks, one after another; sizes in elements.
  template <class T>
  void all_gather_v(std::span<const T> mine, std::span<T> all, std::span<const int64_t> sizes) const {
    gather({mine.data(), mine.size()}, {all.data(), all.size()}, sizes, sizeof(T));
  }

  // This rank's part of the elementwise combination of all ranks' memory, in rank order.
  template <class T>
  void reduce_scatter_v(std::span<const T> x, std::span<T> mine, std::span<const int64_t> sizes,
                        Combination how = Combination::sum) const {
    reduce({x.data(), x.size()}, {mine.data(), mine.size()}, sizes, number_of<T>(), how);
  }

  // Block r goes to rank r; the blocks that arrive are concatenated in rank order.
  template <class T>
  void all_to_all_v(std::span<const T> x, std::span<const int64_t> send_sizes, std::span<T> received,
                    std::span<const int64_t> recv_sizes) const {
    exchange({x.data(), x.size()}, send_sizes, {received.data(), received.size()}, recv_sizes, sizeof(T));
  }

  // The elementwise combination of all ranks' memory, in rank order, on every rank. `all` may be `x`.
  template <class T>
  void all_reduce(std::span<const T> x, std::span<T> all, Combination how = Combination::sum) const {
    reduce_all({x.data(), x.size()}, {all.data(), all.size()}, number_of<T>(), how);
  }

  // The root's memory, on every rank.
  template <class T>
  void broadcast(std::span<T> memory, int64_t root = 0) const {
    send_to_all({memory.data(), memory.size()}, root, sizeof(T));
  }

  // Returns once all ranks have come.
  void barrier() const;

 private:
  struct State;
  struct From {
    const void* data;
    size_t count;
  };
  struct To {
    void* data;
    size_t count;
  };
  using Sizes = std::span<const int64_t>;

  explicit HostGroup(std::shared_ptr<State> state);
  std::shared_ptr<void> allocate_bytes(int64_t bytes) const;
  void gather(From mine, To all, Sizes sizes, size_t element_bytes) const;
  void reduce(From x, To mine, Sizes sizes, Number number, Combination how) const;
  void reduce_all(From x, To all, Number number, Combination how) const;
  void send_to_all(To memory, int64_t root, size_t element_bytes) const;
  void exchange(From x, Sizes send_sizes, To received, Sizes recv_sizes, size_t element_bytes) const;

  std::shared_ptr<State> state_;
};

// Groups that were tuned alike. Each choice says where it comes from: SHARDWAY_TUNING, the topology file, or
// a default.
struct TunedGroups {
  int64_t ranks = 0;
  int64_t groups = 1;          // how many were made, including those that are gone
  std::string processor = {};  // as rank 0 sees it
  bool shares_cache = false;   // whether all cores that the ranks may run on share their last cache
  bool swap = false;           // two ranks fill the memory that they have emptied
  std::string swap_from = {};
  bool hand_back = false;  // readers hand cache lines back to the writer
  std::string hand_back_from = {};

  bool operator==(const TunedGroups&) const = default;
};

struct TuningStats {
  std::string processor = {};  // of this machine
  std::vector<TunedGroups> groups = {};
};

// Returns how the groups of this process are tuned. What `shardway calibrate` measured counts before the
// defaults, if SHARDWAY_TOPOLOGY names its file on the first rank of a group. SHARDWAY_TUNING, such as
// "swap=1,hand_back=0", counts before both; it must be the same on every rank. Any thread may call.
TuningStats tuning_stats();

}  // namespace shardway
