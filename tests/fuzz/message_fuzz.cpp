// Whatever a sender's memory holds, its messages are read or refused by BadHeader, and a reader that keeps
// all of them where they lie comes to an end. The input is how many messages the sender says there are, where
// the first lies and which ones the reader holds; then messages at places, linked to places; then any numbers
// at any places.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "shm/calls/header.h"
#include "shm/calls/message.h"
#include "taker.h"

namespace shardway::shm {
namespace {

constexpr size_t kMemoryBytes = 2048;
constexpr int64_t kMostSteps = 3 * static_cast<int64_t>(kMemoryBytes / sizeof(MessageHead));

using fuzz::Taker;

// Mostly a place where a message can lie, sometimes any number.
int64_t take_offset(Taker& taker) {
  const auto place = taker.take<uint8_t>();
  return place < 192 ? place % 32 * 64 : taker.take<int64_t>();
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

void forge(std::byte* memory, Taker& taker) {
  while (!taker.is_empty()) {
    const auto what = taker.take<uint8_t>();
    if (what < 128) {
      std::byte* place = memory + what % 32 * 64;
      const int64_t next = take_offset(taker);
      new (place) MessageHead{.next = next, .label = {.tag = what}, .bytes = taker.take<uint8_t>()};
    } else {
      const size_t place = taker.take<uint16_t>() % (kMemoryBytes - 7);
      const auto number = taker.take<int64_t>();
      std::memcpy(memory + place, &number, sizeof(number));
    }
  }
}

void walk(Taker taker) {
  const auto sent = taker.take<uint64_t>();
  const int64_t first = take_offset(taker);
  const auto holds = taker.take<uint32_t>();  // a bit by message, over and over
  const std::unique_ptr<std::byte, Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(64, kMemoryBytes)));
  std::memset(memory.get(), 0, kMemoryBytes);
  forge(memory.get(), taker);
  Chain chain;
  uint64_t done = 0;
  uint64_t sum = 0;
  for (int64_t step = 0; step < kMostSteps; ++step) {
    const auto message = chain.next({memory.get(), kMemoryBytes}, first, sent);
    if (!message) return;
    if (message->number != static_cast<uint64_t>(step)) std::abort();
    for (const std::byte byte : message->bytes) sum += static_cast<uint8_t>(byte);
    const auto is_held = [holds](int64_t number) { return (holds >> number % 32 & 1) != 0; };
    if (is_held(step)) chain.hold();
    if (holds != UINT32_MAX && step > 4 && is_held(step - 4)) chain.let_go(static_cast<uint64_t>(step - 4));
    if (chain.done() < done || chain.done() > static_cast<uint64_t>(step) + 1) std::abort();
    done = chain.done();
  }
  if (holds == UINT32_MAX || sum == UINT64_MAX) std::abort();  // more messages than there is memory
}

}  // namespace
}  // namespace shardway::shm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    shardway::shm::walk({data, size});
  } catch (const shardway::shm::BadHeader&) {  // refused with a sentence
  }
  return 0;
}
