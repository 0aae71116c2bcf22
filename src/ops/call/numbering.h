// Errors that name ranks by their numbers in a group, where these may differ from their global numbers.
#pragma once

#include <c10/util/Exception.h>

#include "ops/call/arguments.h"
#include "ops/call/layouts_asked.h"
#include "shardway/group.h"

namespace shardway {

// Runs `body`. Adds to an error that it throws which numbers are meant, if that is not clear.
template <class Body>
auto numbered(const Group& group, Body&& body) {
  try {
    return body();
  } catch (const LayoutsAsked&) {  // is no error yet
    throw;
  } catch (const c10::ValueError& error) {
    const std::string numbering = numbering_of(group.global_ranks());
    if (numbering.empty()) throw;
    C10_THROW_ERROR(ValueError, error.what_without_backtrace() + numbering);
  } catch (const c10::DistBackendError& error) {
    const std::string numbering = numbering_of(group.global_ranks());
    if (numbering.empty()) throw;
    C10_THROW_ERROR(DistBackendError, error.what_without_backtrace() + numbering);
  }
}

}  // namespace shardway
