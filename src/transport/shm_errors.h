// What src/shm throws, as what torch knows.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <stdexcept>

#include "shm/errors.h"
#include "shm/header.h"

namespace shardway {

// Runs `body` on this rank of a group.
template <class Body>
void translated(int64_t rank, Body&& body) {
  try {
    body();
  } catch (const shm::PeerLost& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::NotInTime& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::BadHeader& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::Disagreement& error) {  // the same on every rank
    TORCH_CHECK_VALUE(false, error.what());
  } catch (const shm::ArenaFull& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what(), " (rank ", rank, ")");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what(), " (rank ", rank, ")");
  }
}

}  // namespace shardway
