// What a rank does if its call fails while the others wait for it.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "transport/common/transport.h"

namespace shardway {

// A transport whose other ranks can be told that a call of this rank failed.
class GivesUp {
 public:
  virtual ~GivesUp() = default;

  // Ends the group: who waits for this rank raises.
  virtual void give_up(const std::string& why) = 0;
};

// Tells the other ranks that a call of this rank failed, and ends the group: who waits for this rank raises.
// Does nothing where ranks have another way to learn it, or none (docs/decisions/0002).
void give_up(Transport& transport, const std::string& why);

// Runs the part of a call in which other ranks wait for this one. A c10::ValueError is thrown on every rank,
// and a c10::DistBackendError is one of the transport, which has told the others; any other error is told
// them.
template <class Body>
auto or_give_up(Transport& transport, Body&& body) {
  try {
    return body();
  } catch (const c10::ValueError&) {
    throw;
  } catch (const c10::DistBackendError&) {
    throw;
  } catch (const c10::Error& error) {
    give_up(transport, error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    give_up(transport, error.what());
    throw;
  }
}

}  // namespace shardway
