// Translates what src/shm throws into torch's errors.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "shm/calls/header.h"
#include "shm/memory/errors.h"

namespace shardway {

// How the ranks of a group that is a part of another are named in errors.
struct PartOfGroup {
  std::vector<int64_t> numbers = {};  // by rank: its number in the whole; empty if the group is the whole
  // Returns the error of this rank when `rank` of the whole was lost.
  std::function<std::string(int64_t rank, const std::string& why)> error_of_loss = {};

  int64_t number(int64_t rank) const { return numbers.empty() ? rank : numbers[static_cast<size_t>(rank)]; }
};

// Runs `body` on this rank of a group. If `op` is given, every error begins with it, except a disagreement.
template <class Body>
void translated(int64_t rank, Body&& body, std::string_view op = {}, const PartOfGroup& part = {}) {
  const char* colon = op.empty() ? "" : ": ";
  try {
    body();
  } catch (const shm::PeerLost& error) {
    if (part.error_of_loss && !error.why().empty())
      TORCH_CHECK_WITH(DistBackendError, false, op, colon,
                       part.error_of_loss(part.number(error.peer()), error.why()));
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", part.number(rank), ")");
  } catch (const shm::BadHeader& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", part.number(rank), ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", part.number(rank), ")");
  } catch (const shm::Disagreement& error) {  // the same on every rank
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const shm::ArenaFull& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, op, colon, error.what(), " (rank ", part.number(rank), ")");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, op, colon, error.what(), " (rank ", part.number(rank), ")");
  }
}

// Why the ranks refuse a call once they have heard one another. Every rank finds the same c10::ValueError, so
// none of them goes on. The error is kept and thrown when the call is over.
class KeptRefusal {
 public:
  // Returns whether the call goes on: what `decide` returns, or false if it throws a c10::ValueError.
  template <class Decide>
  bool passes(Decide&& decide) {
    try {
      return decide();
    } catch (const c10::ValueError&) {
      why_ = std::current_exception();
      return false;
    }
  }

  void raise_if_any() const {
    if (why_) std::rethrow_exception(why_);
  }

 private:
  std::exception_ptr why_;
};

}  // namespace shardway
