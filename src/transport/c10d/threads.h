// Ranks as threads of one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/c10d/mail.h"
#include "transport/common/transport.h"

namespace shardway {

// What a group of such ranks communicates by. It lives as long as anything made from it.
class ThreadWorld {
 public:
  explicit ThreadWorld(int64_t ranks);

  std::shared_ptr<Transport> transport(int64_t rank) const;
  std::shared_ptr<MailOffice> mail_office(int64_t rank) const;

  // Whoever waits for a message stops waiting.
  void close() const;

 private:
  struct Offices;
  std::shared_ptr<Offices> offices_;
};

// Runs `body` on a thread per rank. Rethrows the first exception after all threads have ended;
// `when_one_fails` makes the others end.
void run_on_threads(int64_t ranks, const std::function<void(int64_t rank)>& body,
                    const std::function<void()>& when_one_fails);

}  // namespace shardway
