// What src/shm throws, as what torch knows.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "shm/calls/header.h"
#include "shm/memory/errors.h"

namespace shardway {

// Runs `body` on this rank of a group. The op, where it is given, begins every error.
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

}  // namespace shardway
