#include "link/moves/hub_store.h"

#include <c10/util/Exception.h>

#include "link/talk/base64.h"

namespace shardway::link {
namespace {

constexpr std::chrono::seconds kAnswerLimit{30};  // of a hub that is there; a wait has a limit of its own

std::string keys_text(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : ", ") + key;
  return text;
}

}  // namespace

HubStore::HubStore(std::shared_ptr<HubConnection> connection, std::chrono::milliseconds timeout)
    : HubStore(std::make_shared<Line>(), timeout) {
  line_->connection = std::move(connection);
}

c10::intrusive_ptr<c10d::Store> HubStore::clone() {
  return c10::intrusive_ptr<HubStore>::reclaim(new HubStore(line_, timeout_));
}

template <class Read>
auto HubStore::asked(const Json& question, std::chrono::milliseconds limit, Read&& read) {
  const std::lock_guard lock(line_->mutex);
  try {
    return read(line_->connection->ask(question, Instant::clock::now() + limit));
  } catch (const HubGone& gone) {
    C10_THROW_ERROR(DistStoreError, std::string("link: the meeting is over (") + gone.what() + ")");
  } catch (const NotOurs& error) {
    C10_THROW_ERROR(DistStoreError, std::string("link: an answer cannot be read: ") + error.what());
  }
}

void HubStore::set(const std::string& key, const Bytes& value) {
  asked({{"do", "set"}, {"key", key}, {"value", base64_of(value)}}, kAnswerLimit, [](const Json&) {});
}

HubStore::Bytes HubStore::get(const std::string& key) {
  wait({key});
  return asked({{"do", "get"}, {"key", key}}, kAnswerLimit, [&](const Json& answer) {
    if (!answer.contains("value")) C10_THROW_ERROR(DistStoreError, "link: the key " + key + " was deleted");
    return bytes_of_base64(text_in(answer, "value"));
  });
}

int64_t HubStore::add(const std::string& key, int64_t value) {
  return asked({{"do", "add"}, {"key", key}, {"count", value}}, kAnswerLimit,
               [](const Json& answer) { return integer_in(answer, "count"); });
}

bool HubStore::check(const std::vector<std::string>& keys) {
  return asked({{"do", "check"}, {"keys", keys}}, kAnswerLimit,
               [](const Json& answer) { return truth_or(answer, "are_there", false); });
}

void HubStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void HubStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  asked({{"do", "wait"}, {"keys", keys}}, timeout, [&](const Json& answer) {
    if (text_in(answer, "is") != "late") return;
    C10_THROW_ERROR(DistStoreError, "link: " + keys_text(keys) + " was not set within " +
                                        std::to_string(timeout.count()) + " ms");
  });
}

bool HubStore::deleteKey(const std::string& key) {
  return asked({{"do", "delete"}, {"key", key}}, kAnswerLimit,
               [](const Json& answer) { return truth_or(answer, "was_there", false); });
}

HubStore::Bytes HubStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  const Json question = {
      {"do", "swap"}, {"key", key}, {"expected", base64_of(expected)}, {"value", base64_of(desired)}};
  return asked(question, kAnswerLimit,
               [](const Json& answer) { return bytes_of_base64(text_in(answer, "value")); });
}

int64_t HubStore::getNumKeys() {
  return asked({{"do", "count"}}, kAnswerLimit,
               [](const Json& answer) { return integer_in(answer, "count"); });
}

void HubStore::close() {
  const std::lock_guard lock(line_->mutex);
  line_->connection->close();
}

}  // namespace shardway::link
