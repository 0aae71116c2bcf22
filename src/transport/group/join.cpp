// The groups of a C++ program: join() makes the group of all its ranks in shared memory, split() makes parts
// of a group.
#include <c10/util/Exception.h>

#include "shardway/group.h"
#include "shm/group/world.h"
#include "transport/common/exchange.h"
#include "transport/group/joined.h"
#include "transport/shm/shm.h"

namespace shardway {
namespace {

// Runs `body`; translates what src/shm throws into torch's errors.
template <class Body>
auto translated(Body&& body) {
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const c10::Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what());
  }
}

}  // namespace

Group join(const JoinOptions& options) {
  shm::JoinedGroup joined = translated([&] { return shm::join_world(options); });
  TORCH_CHECK_VALUE(joined.group, "join: the ranks share no memory: ", joined.why_not,
                    "; make a Group of a c10d process group instead");
  std::shared_ptr<Transport> world = make_shm_transport(std::move(joined.group));
  remember_joined(world);
  return Group(std::move(world));
}

Group Group::split(int64_t color, int64_t key) const {
  check_meant("split");
  const auto exchange = [this](std::span<const std::byte> mine) { return exchanged(transport(), mine); };
  const shm::Whole whole{
      .rank = rank_, .size = size_, .exchange = exchange, .timeout = transport().timeout()};
  shm::SplitGroup part = translated([&] { return shm::split(whole, color, key); });
  Group group(make_shm_transport(std::move(part.group)));
  const std::vector<int64_t> numbers = global_ranks();
  for (const int64_t member : part.members)
    group.global_ranks_.push_back(numbers[static_cast<size_t>(member)]);
  return group;
}

}  // namespace shardway
