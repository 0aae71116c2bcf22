// Messages between hosts by a MessageEngine, for programs without c10d.
#pragma once

#include <chrono>
#include <memory>

#include "shardway/message_engine.h"
#include "transport/c10d/mail.h"

namespace shardway {

std::shared_ptr<MailOffice> make_mail_office(std::shared_ptr<MessageEngine> engine,
                                             std::chrono::milliseconds timeout);

}  // namespace shardway
