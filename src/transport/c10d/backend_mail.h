// Messages by the sends and receives of a c10d backend.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "transport/c10d/lifelines.h"
#include "transport/c10d/mail.h"
#include "transport/common/ledger.h"

namespace shardway {

// What the calls of a process group share.
struct MailRoom {
  std::shared_ptr<Ledger> ledger;
  std::shared_ptr<Lifelines> lifelines;
  std::shared_ptr<const std::vector<std::string>> hosts = nullptr;  // in words, by rank, if they are known
};

MailRoom make_mail_room();

// gloo and MPI accept a message that is shorter than its buffer; for other engines this is unknown.
bool takes_shorter(const c10d::Backend& backend);

// The messages of the group's next call. If one does not arrive, the group is lost: late messages would be
// taken for later ones. Then each wait throws a c10::DistBackendError that names the rank that was lost
// first.
MailOffice::Opened open_mail(c10::intrusive_ptr<c10d::Backend> backend, const MailRoom& room,
                             const Subject& subject, Lengths lengths);

// `hosts` are in words, by rank, if the errors are to name them.
std::shared_ptr<MailOffice> make_mail_office(c10::intrusive_ptr<c10d::Backend> backend, MailRoom room,
                                             std::vector<std::string> hosts = {});

}  // namespace shardway
