// Every call of plain memory, and every mistake with MPI, by its name in the first argument. A rank prints
// what it got, behind its number.
#include <mpi.h>
#include <shardway/mpi_engine.h>
#include <shardway/shm.h>

#include <chrono>
#include <complex>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardway;
using sw::Combination;

namespace {

constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(20);

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

// One write, so that lines of several ranks do not mix.
void say(int64_t rank, const std::string& text) {
  const std::string line = "[" + std::to_string(rank) + "] " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

template <class T>
std::string text_of(const std::vector<T>& values) {
  std::ostringstream text;
  for (const T& value : values) text << value << ' ';
  return text.str();
}

template <class T>
std::vector<T> counted(int64_t count, int64_t from, int64_t step = 1) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(from + step * static_cast<int64_t>(i));
  return values;
}

// The sum, weighted by place: equal for equal values alone, for practical purposes.
template <class T>
std::string digest(const std::vector<T>& values) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(i % 1009 + 1);
  return std::to_string(values.size()) + " values, digest " + std::to_string(sum);
}

// Sizes of 0, 3, 6, … elements, times `scale`.
std::vector<int64_t> ragged(int64_t ranks, int64_t scale) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(3 * rank * scale);
  return sizes;
}

template <class T>
std::vector<T> of_size(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count));
}

int64_t total(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

void gather_and_reduce(const sw::HostGroup& world, int64_t scale) {
  const int64_t rank = world.rank();
  const auto sizes = ragged(world.size(), scale);
  const int64_t own = sizes[static_cast<size_t>(rank)];
  auto all = of_size<float>(total(sizes));
  world.all_gather_v<float>(counted<float>(own, 100 * rank), all, sizes);
  say(rank, "all_gather_v: " + (scale == 1 ? text_of(all) : digest(all)));

  for (const auto how : {Combination::sum, Combination::avg, Combination::max}) {
    auto mine = of_size<double>(own);
    world.reduce_scatter_v<double>(counted<double>(total(sizes), rank, world.size()), mine, sizes, how);
    say(rank, "reduce_scatter_v: " + (scale == 1 ? text_of(mine) : digest(mine)));
  }
}

void reduce_all(const sw::HostGroup& world, int64_t count) {
  auto x = counted<int64_t>(count, world.rank());
  auto all = of_size<int64_t>(count);
  world.all_reduce<int64_t>(x, all, Combination::bxor);
  say(world.rank(), "all_reduce: " + digest(all));
  world.all_reduce<int64_t>(x, x);
  say(world.rank(), "all_reduce in place: " + digest(x));
}

void exchange(const sw::HostGroup& world, int64_t scale) {
  const int64_t rank = world.rank();
  std::vector<int64_t> send;
  std::vector<int64_t> recv;
  for (int64_t peer = 0; peer < world.size(); ++peer) {
    send.push_back(scale * (rank + 2 * peer));
    recv.push_back(scale * (peer + 2 * rank));
  }
  auto received = of_size<int32_t>(total(recv));
  world.all_to_all_v<int32_t>(counted<int32_t>(total(send), 1000 * rank), send, received, recv);
  say(rank, "all_to_all_v: " + (scale == 1 ? text_of(received) : digest(received)));
}

void disagree(const sw::HostGroup& world) {
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()), 1);
  auto all = of_size<float>(world.size());
  const float mine = 1;
  try {
    if (world.rank() + 1 == world.size()) {
      world.barrier();
    } else {
      world.all_gather_v<float>({&mine, 1}, all, sizes);
    }
    say(world.rank(), "did not notice");
  } catch (const std::exception& error) {
    say(world.rank(), error.what());
  }
}

void make_every_call(const sw::HostGroup& world) {
  for (const int64_t scale : {1, 7001}) {
    gather_and_reduce(world, scale);
    exchange(world, scale);
  }
  for (const int64_t count : {0, 1, 5, 50001}) reduce_all(world, count);
  for (int64_t root = 0; root < world.size(); ++root) {
    auto memory = counted<std::complex<float>>(5000, world.rank() == root ? root + 1 : 0);
    world.broadcast<std::complex<float>>(memory, root);
    say(world.rank(), "broadcast: " + std::to_string(memory.front().real() + memory.back().real()));
  }
  disagree(world);
  world.barrier();
}

// What the cable of this host has sent; none on a host without one.
int64_t sent_by_cable() {
  std::ifstream counters("/proc/thread-self/net/dev");
  for (std::string line; std::getline(counters, line);) {
    if (line.find("cable") == std::string::npos) continue;
    std::istringstream numbers(line.substr(line.find(':') + 1));
    std::vector<int64_t> found(9);
    for (int64_t& number : found) numbers >> number;
    return found[8];
  }
  return 0;
}

// What each host sends in each call, of 1 MiB a rank.
void count_bytes(const sw::HostGroup& world) {
  const int64_t ranks = world.size();
  const int64_t mib = 1 << 18;  // floats
  const std::vector<int64_t> sizes(static_cast<size_t>(ranks), mib);
  const std::vector<float> mine(static_cast<size_t>(mib));
  std::vector<float> whole(static_cast<size_t>(mib * ranks));
  std::vector<float> part(static_cast<size_t>(mib));
  const std::map<std::string, std::function<void()>> calls = {
      {"all_gather_v", [&] { world.all_gather_v<float>(mine, whole, sizes); }},
      {"all_reduce", [&] { world.all_reduce<float>(mine, part); }},
      {"broadcast", [&] { world.broadcast<float>(part, 0); }},
      {"reduce_scatter_v", [&] { world.reduce_scatter_v<float>(whole, part, sizes); }}};
  for (const auto& [name, call] : calls) {
    call();
    world.barrier();
    const int64_t before = sent_by_cable();
    world.barrier();
    for (int repeat = 0; repeat < 4; ++repeat) call();
    world.barrier();
    const int64_t sent = sent_by_cable() - before;
    world.barrier();
    say(world.rank(), name + " sent " + std::to_string(sent / 4));
  }
}

// 2^31 bytes and some more, in one message.
void send_many_bytes(const sw::HostGroup& world) {
  const int64_t count = (int64_t{1} << 31) + 5;
  std::vector<uint8_t> memory(static_cast<size_t>(count), world.rank() == 0 ? 3 : 0);
  if (world.rank() == 0) memory.back() = 7;
  world.broadcast<uint8_t>(memory, 0);
  const bool holds = memory.front() == 3 && memory[memory.size() - 2] == 3 && memory.back() == 7;
  say(world.rank(), holds ? "many bytes came" : "many bytes came wrong");
}

// The last rank stays away from a call.
void lose_one(const sw::HostGroup& world) {
  if (world.rank() + 1 == world.size()) {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    return;
  }
  world.barrier();
}

struct Thrown {
  int64_t rank = 0;
  template <class Body>
  void by(Body&& body) const {
    try {
      body();
      say(rank, "nothing was thrown");
    } catch (const std::invalid_argument& error) {
      say(rank, std::string("invalid_argument: ") + error.what());
    } catch (const std::runtime_error& error) {
      say(rank, std::string("runtime_error: ") + error.what());
    }
  }
};

void join_and_forget(MPI_Comm communicator) {
  (void)sw::HostGroup::join_hosts(sw::mpi_engine(communicator), kTimeout);
}

void run(const std::string& what) {
  const Thrown thrown{.rank = rank_of_world()};
  if (what == "freed" || what == "stale") {
    MPI_Comm mine = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    const MPI_Comm copy = mine;
    MPI_Comm_free(&mine);
    return thrown.by([&] { join_and_forget(what == "stale" ? copy : mine); });
  }
  if (what == "thread") {
    std::thread other([&] { thrown.by([] { join_and_forget(MPI_COMM_WORLD); }); });
    return other.join();
  }
  if (what == "environment") return make_every_call(sw::HostGroup::join({.timeout = kTimeout}));
  if (what == "lost") {
    return thrown.by(
        [] { lose_one(sw::HostGroup::join_hosts(sw::mpi_engine(MPI_COMM_WORLD), std::chrono::seconds(1))); });
  }
  const sw::HostGroup world = sw::HostGroup::join_hosts(sw::mpi_engine(MPI_COMM_WORLD), kTimeout);
  if (what == "calls") make_every_call(world);
  if (what == "bytes") count_bytes(world);
  if (what == "many") send_many_bytes(world);
  if (what == "mpi too") {  // messages of the program itself do not meet ours
    int token = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    make_every_call(world);
    const int rank = rank_of_world();
    MPI_Send(&rank, 1, MPI_INT, static_cast<int>((rank + 1) % world.size()), 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say(rank, "token " + std::to_string(token));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "calls";
  if (what == "uninitialised") {
    Thrown{}.by([] { join_and_forget(MPI_COMM_WORLD); });
    return 0;
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  if (what == "finalised") {
    const sw::HostGroup world = sw::HostGroup::join_hosts(sw::mpi_engine(MPI_COMM_WORLD), kTimeout);
    const Thrown thrown{.rank = world.rank()};
    MPI_Finalize();
    thrown.by([&] { world.barrier(); });
    thrown.by([] { join_and_forget(MPI_COMM_WORLD); });
    return 0;
  }
  try {
    run(what);
  } catch (const std::exception& error) {
    say(rank_of_world(), std::string("failed: ") + error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
