// What the exchange brings of the other ranks before they share memory, of any bytes.
#include "shm/join/handshake.h"

namespace {

using namespace shardway::shm;

template <class Word>
std::vector<Word> words(std::span<const std::byte> all) {
  const size_t ranks = all.size() / sizeof(Word);
  return words_of<Word>(all.first(ranks * sizeof(Word)), static_cast<int64_t>(ranks));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto all = std::as_bytes(std::span(data, size));
  if (size < sizeof(Hello)) return 0;
  const std::vector<Hello> hellos = words<Hello>(all);
  (void)refusal_of(hellos);
  (void)mistake_of(hellos);
  std::vector<cpu_set_t> cores;
  std::vector<int64_t> quotas;
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (name_of(rank, hellos[rank]).empty() || *place_of(hellos[rank].host, hellos[0].host) == '\0') abort();
    if (text_of(hellos[rank].why_not).size() > kReasonBytes) abort();
    cores.push_back(hellos[rank].cores);
    quotas.push_back(hellos[rank].quota);
    if (*name_of(hellos[rank].processor) == '\0' || text_of(hellos[rank].pins).empty()) abort();
  }
  every_rank_has_a_core(cores, quotas);
  share_cache(cores, hellos[0].cores_at_cache);
  (void)refusal_of(words<Verdict>(all));
  return 0;
}
