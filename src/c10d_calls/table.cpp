#include "c10d_calls/table.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "shm/calls/header.h"
#include "transport/common/torch_kinds.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

constexpr uint64_t kTerms = shm::mark_of("torch.distributed");

int64_t row_bytes(int64_t ranks) { return wire::longest_line(ranks) + wire::kProblemBytes; }

wire::Draft draft_of(Collective call, const Terms& terms) {
  wire::Draft draft;
  wire::BlockHeader& header = draft.header;
  header.collective = static_cast<uint8_t>(call);
  header.has_tensor = terms.dtype != at::ScalarType::Undefined;
  if (header.has_tensor) header.dtype = static_cast<int8_t>(terms.dtype);
  header.op = terms.op;
  header.factor = terms.factor;
  header.root = static_cast<int32_t>(terms.root);
  header.dim = static_cast<int32_t>(terms.sparse_dims);
  header.in_size = terms.sends.each;
  header.out_size = terms.takes.each;
  draft.shape = terms.shape;
  draft.sizes = terms.sends.by_rank;
  draft.recv_sizes = terms.takes.by_rank;
  return draft;
}

wire::Draft draft_of(Collective call, const std::string& problem) {
  wire::Draft draft{.text = problem};
  draft.header.collective = static_cast<uint8_t>(call);
  draft.header.has_problem = 1;
  return draft;
}

void move(shm::SharedGroup& group, const Prepared& prepared, const shm::Subject& subject,
          const shm::Talk& talk) {
  if (const auto* contiguous = std::get_if<shm::ContiguousCall>(&prepared.moves)) {
    group.run(*contiguous, subject, &talk);
  } else if (const auto* all_reduce = std::get_if<shm::AllReduce>(&prepared.moves)) {
    group.run(*all_reduce, subject, &talk);
  } else {
    group.gather_notes(talk, subject);
  }
}

}  // namespace

Table::Table(int64_t size, c10::DeviceType device)
    : size_(size),
      device_(device),
      mine_(static_cast<size_t>(row_bytes(size))),
      rows_(static_cast<size_t>(size * row_bytes(size))),
      lengths_(static_cast<size_t>(size)) {}

// Whether all ranks sent the same block, in which all sizes are equal: then they agree.
bool Table::says_what_all_say(int64_t bytes) const {
  wire::BlockHeader header;
  std::memcpy(&header, mine_.data(), sizeof(header));
  if (header.has_problem || header.has_sizes || header.has_recv_sizes || header.in_size != header.out_size)
    return false;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const bool is_same =
        lengths_[static_cast<size_t>(rank)] == bytes &&
        std::memcmp(rows_.data() + rank * row_bytes(size_), mine_.data(), static_cast<size_t>(bytes)) == 0;
    if (!is_same) return false;
  }
  return true;
}

bool Table::agree(int64_t bytes) {
  if (says_what_all_say(bytes)) return true;
  const wire::BlockRows blocks(rows_.data(), row_bytes(size_), size_);
  const std::string why = wire::why_no_blocks(blocks, lengths_, wire::Slot::tensor, kinds_of_torch());
  if (!why.empty()) throw shm::BadHeader(why);
  const std::string disagreement = wire::disagreement(blocks, kinds_of_torch());
  TORCH_CHECK_VALUE(disagreement.empty(), disagreement);
  return true;
}

wire::BlockRows Table::run(shm::SharedGroup& group, Collective call,
                           const std::function<Prepared()>& prepare) {
  Prepared prepared;
  std::optional<std::string> problem;
  try {
    prepared = prepare();
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const wire::Draft draft = problem ? draft_of(call, *problem) : draft_of(call, prepared.terms);
  const int64_t bytes = wire::bytes_of(draft, size_);
  wire::write(draft, size_, mine_.data());
  const bool is_on_cpu = device_ == c10::DeviceType::CPU;
  const shm::Subject subject{
      .mark = is_on_cpu ? kTerms : shm::mark_of(kTerms, static_cast<uint64_t>(device_)),
      .name = name_of(call),
      .words = [call, is_on_cpu] {
        return std::string("torch.distributed's ") + name_of(call) + (is_on_cpu ? "" : " on a GPU");
      }};
  KeptRefusal refusal;
  move(group, prepared, subject,
       {.note = std::as_bytes(std::span(mine_.data(), static_cast<size_t>(bytes))),
        .rows = reinterpret_cast<std::byte*>(rows_.data()),
        .row_bytes = row_bytes(size_),
        .lengths = lengths_.data(),
        .agrees = [&] { return refusal.passes([&] { return agree(bytes); }); }});
  refusal.raise_if_any();
  return {rows_.data(), row_bytes(size_), size_};
}

}  // namespace shardway::backend
