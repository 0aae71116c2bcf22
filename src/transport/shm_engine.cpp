#include "transport/shm_engine.h"

#include <ATen/ATen.h>

#include "shm/errors.h"
#include "shm/execution.h"
#include "shm/header.h"
#include "shm/thresholds.h"
#include "transport/shm_part.h"

namespace shardway {
namespace {

// Two copies more than a pull, against one meeting less.
constexpr int64_t kSlotBytes = 16 << 10;

// Runs `body`; what src/shm throws becomes what torch knows.
template <class Body>
void translated(int64_t rank, Body&& body) {
  try {
    body();
  } catch (const shm::PeerLost& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::BadHeader& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::ArenaFull& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what(), " (rank ", rank, ")");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what(), " (rank ", rank, ")");
  }
}

}  // namespace

ShmEngine::ShmEngine(std::shared_ptr<shm::Group> group) : group_(std::move(group)) {}

int64_t ShmEngine::slot_bytes() { return kSlotBytes; }

at::Tensor ShmEngine::all_gather_block(const at::Tensor& mine, int64_t row_bytes) {
  at::Tensor rows = at::empty({group_->size(), row_bytes}, at::kByte);
  const std::span note(static_cast<const std::byte*>(mine.const_data_ptr()),
                       static_cast<size_t>(mine.numel()));
  turns_.in_turn([&] {
    translated(group_->rank(), [&] {
      group_->gather_notes(note, static_cast<std::byte*>(rows.mutable_data_ptr()), row_bytes);
    });
  });
  return rows;
}

void ShmEngine::run(const Route& route, const at::Tensor& x, const at::Tensor& out,
                    const KnownInputs& known) {
  turns_.in_turn([&] {
    translated(group_->rank(), [&] {
      const ShmPart part(route, x, out, known);
      group_->run(part.part());
    });
  });
}

void ShmEngine::run_alone(const Route& route, const at::Tensor& x, const at::Tensor& out,
                          const KnownInputs& known) {
  translated(route.rank, [&] { shm::run_alone(ShmPart(route, x, out, known).part()); });
}

std::unique_ptr<Posted> ShmEngine::post(std::function<void()> call) { return turns_.post(std::move(call)); }

}  // namespace shardway
