// A route run by messages of exactly the bytes that move.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "shardway/route.h"
#include "transport/c10d/mail.h"
#include "transport/common/transport.h"

namespace shardway {

// A box that lies contiguously in the output is received in place; others are received into a buffer and
// unpacked in one pass. A box that lies contiguously in the input is sent from there; others are packed in
// one pass. `mail` may be null for a route between a rank and itself.
std::unique_ptr<Transfer> start_by_mail(std::shared_ptr<Mail> mail, const Route& route, const at::Tensor& x,
                                        const at::Tensor& out, const KnownInputs& known);

// A route whose input is still to be made.
class ExpectingTransfer : public Transfer {
 public:
  // Once the input is there, and before finish(). If it is never called, nothing is sent.
  virtual void send() = 0;
};

// The same in two moments. Receives are posted at once if the messages are few: an engine that knows where a
// message goes moves it as soon as it is sent.
std::unique_ptr<ExpectingTransfer> expect_by_mail(std::shared_ptr<Mail> mail, const Route& route,
                                                  const at::Tensor& x, const at::Tensor& out);

// See Transport.
int64_t slot_bytes_by_mail(bool takes_shorter, int64_t ranks);
Blocks all_gather_block_by_mail(Mail& mail, const at::Tensor& mine, int64_t row_bytes, uint64_t number);

}  // namespace shardway
