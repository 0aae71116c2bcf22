#include "link/moves/vote.h"

#include "shardway/collectives.h"
#include "transport/memory/tensors.h"

namespace shardway::link {

Vote::Vote(const Group& group)
    : said_(zero_tensor({2}, at::kLong)),
      call_(prepare([&] { return all_reduce(said_, {.op = Op::min, .group = group}); })) {}

bool Vote::all_say(int64_t word) {
  auto* said = said_.mutable_data_ptr<int64_t>();
  said[0] = word;
  said[1] = -word;
  call_.call.run();
  const auto* heard = call_.result.const_data_ptr<int64_t>();
  return word != 0 && heard[0] == word && heard[1] == -word;
}

}  // namespace shardway::link
