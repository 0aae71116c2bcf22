// Translates what src/shm throws into torch's errors.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "shm/calls/header.h"
#include "shm/memory/errors.h"

namespace shardway {

// Runs `body` on this rank of a group. If `op` is given, every error begins with it, except a disagreement.
template <class Body>
void translated(int64_t rank, Body&& body, std::string_view op = {}) {
  const char* colon = op.empty() ? "" : ": ";
  try {
    body();
  } catch (const shm::PeerLost& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", rank, ")");
  } catch (const shm::BadHeader& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", rank, ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, op, colon, error.what(), " (rank ", rank, ")");
  } catch (const shm::Disagreement& error) {  // the same on every rank
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const shm::ArenaFull& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, op, colon, error.what(), " (rank ", rank, ")");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, op, colon, error.what(), " (rank ", rank, ")");
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
