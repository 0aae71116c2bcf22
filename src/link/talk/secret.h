// How two processes show one another that they know the secret, without saying it.
#pragma once

#include <optional>
#include <string>

#include "link/talk/wire.h"

namespace shardway::link {

// By default that of SHARDWAY_LINK_SECRET in the environment; none at all if that is not set.
std::string read_secret(const std::optional<std::string>& given);

std::string fresh_nonce();

// Of one side, so that an answer cannot be sent back as a question, and of all that both have said so far.
std::string proof(const std::string& secret, const std::string& side, const Json& said);

// Takes the same time wherever the two differ.
bool is_proof(const Json& shown, const std::string& expected);

}  // namespace shardway::link
