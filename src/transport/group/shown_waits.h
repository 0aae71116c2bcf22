// Messages between hosts, for which ranks of the same host see each other wait.
#pragma once

#include <memory>

#include "shm/group/group.h"
#include "transport/c10d/mail.h"

namespace shardway {

// The same mail; while a message is waited for, the group of this host knows it (Waiting::Elsewhere).
std::shared_ptr<MailOffice> with_shown_waits(std::shared_ptr<MailOffice> office,
                                             std::shared_ptr<shm::SharedGroup> host);

}  // namespace shardway
