// The groups of a C++ program: join() makes the group of all its ranks, split() makes parts of a group,
// shrink() makes what is left of one.
#include <c10/util/Exception.h>

#include "shardway/group.h"
#include "shardway/shrink.h"
#include "shm/group/join_world.h"
#include "shm/group/world.h"
#include "transport/common/exchange.h"
#include "transport/group/hosts_transport.h"
#include "transport/group/joined.h"
#include "transport/hosts/engine_mail.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_engine.h"

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

std::shared_ptr<Transport> transport_of(shm::World world, std::chrono::milliseconds timeout) {
  if (world.group) return make_shm_transport(std::move(world.group));
  TORCH_CHECK_VALUE(world.engine, "join: the ranks share no memory: ", world.why_not,
                    "; make a Group of a c10d process group instead");
  const bool may_use_thread = world.engine->serves_threads();
  return make_hosts_transport(world.hosts, make_mail_office(std::move(world.engine), timeout),
                              std::make_shared<CallQueue>(), timeout, may_use_thread)
      .transport;
}

Group group_of(shm::World world, std::chrono::milliseconds timeout) {
  std::shared_ptr<Transport> transport = transport_of(std::move(world), timeout);
  remember_joined(transport);
  return Group(std::move(transport));
}

}  // namespace

Group join(const JoinOptions& options) {
  return group_of(translated([&] { return shm::join_world(options); }), options.timeout);
}

Group join_hosts(const EngineMaker& make, std::chrono::milliseconds timeout) {
  return group_of(translated([&] { return shm::join_world(make, timeout); }), timeout);
}

Group Group::split(int64_t color, int64_t key) const {
  check_meant("split");
  const auto exchange = [this](std::span<const std::byte> mine) { return exchanged(transport(), mine); };
  const shm::Whole whole{
      .rank = rank_, .size = size_, .exchange = exchange, .timeout = transport().timeout()};
  shm::Subgroup part = translated([&] { return shm::split(whole, color, key); });
  Group group(make_shm_transport(std::move(part.group)));
  const std::vector<int64_t> numbers = global_ranks();
  for (const int64_t member : part.members)
    group.global_ranks_.push_back(numbers[static_cast<size_t>(member)]);
  return group;
}

Group shrink(const Group& group, std::optional<std::chrono::milliseconds> timeout) {
  group.check_meant("shrink");
  const auto engine = shm_engine_of(group.transport());
  TORCH_CHECK_VALUE(
      engine != nullptr,
      "shrink: the ranks share no memory, or have made no call yet by which they would know (rank ",
      group.rank(), ")");
  const shm::Subgroup part = engine->shrink(timeout);
  const std::vector<int64_t> numbers = group.global_ranks();
  std::vector<int64_t> left;
  for (const int64_t member : part.members) left.push_back(numbers[static_cast<size_t>(member)]);
  return Group(make_shm_transport(std::make_shared<ShmEngine>(part.group), std::move(left)));
}

}  // namespace shardway
