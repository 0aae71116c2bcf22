#include "transport/group/hosts_transport.h"

#include <c10/util/Exception.h>

#include "record/part_names.h"
#include "transport/group/lone_transport.h"
#include "transport/group/shown_waits.h"
#include "transport/hosts/two_level_transport.h"
#include "transport/shm/shm.h"

namespace shardway {

std::vector<std::string> hosts_in_words(const shm::HostGroups& groups) {
  const HostMap hosts(groups.labels);
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < hosts.ranks(); ++rank)
    words.push_back(
        c10::str("host ", hosts.host_of(rank), " (", groups.names[static_cast<size_t>(rank)], ")"));
  return words;
}

HostsTransport make_hosts_transport(const shm::HostGroups& groups, const std::shared_ptr<MailOffice>& between,
                                    std::shared_ptr<CallQueue> queue, std::chrono::milliseconds timeout,
                                    bool may_use_thread) {
  if (!groups.why_apart.empty()) {
    TORCH_WARN_ONCE("ranks of one host share no memory, so each counts as a host of its own: ",
                    groups.why_apart);
  }
  HostMap hosts(groups.labels);
  HostsTransport made{.leave = [] {}, .gone = [] { return std::vector<int64_t>(); }};
  std::function<void()> end_host = [] {};
  std::shared_ptr<Transport> inside = lone_transport();
  std::shared_ptr<MailOffice> shown = between;
  if (groups.own) {
    groups.own->set_idle_work(between->idle_work());
    shown = with_shown_waits(between, groups.own);
    end_host = [group = groups.own] { group->abort(); };
    made.leave = [group = groups.own] { group->leave(); };
    const auto lost = [between](int64_t rank, const std::string& why) { return between->give_up(rank, why); };
    const std::vector<int64_t>& mates = hosts.ranks_of(hosts.host_of(between->rank()));
    made.gone = [group = groups.own, mates] {
      std::vector<int64_t> gone;
      for (int64_t place = 0; place < group->size(); ++place) {
        if (group->has_gone(place)) gone.push_back(mates[static_cast<size_t>(place)]);
      }
      return gone;
    };
    record::know_part(groups.own->id(),
                      {.numbers = mates,
                       .place = hosts_in_words(groups)[static_cast<size_t>(between->rank())] +
                                " of a group of " + std::to_string(hosts.ranks()) + " ranks"});
    inside = make_shm_transport(groups.own, {.numbers = mates, .error_of_loss = lost});
  }
  made.give_up = [between, end_host](const std::string& why) {
    between->give_up(between->rank(), why);
    end_host();
  };
  made.transport = make_two_level_transport({.hosts = std::move(hosts),
                                             .inside = std::move(inside),
                                             .between = std::move(shown),
                                             .queue = std::move(queue),
                                             .timeout = timeout,
                                             .leave_host = end_host,
                                             .may_use_thread = may_use_thread});
  return made;
}

}  // namespace shardway
