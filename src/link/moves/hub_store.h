// A store of c10d whose keys are kept by the process that holds the link.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "link/talk/connection.h"

namespace shardway::link {

// Any thread may use it, one at a time. Throws c10::DistStoreError if the meeting is over, or if a key was
// not set in time.
class HubStore : public c10d::Store {
 public:
  using Bytes = std::vector<uint8_t>;

  HubStore(std::shared_ptr<HubConnection> connection, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  Bytes get(const std::string& key) override;  // waits for the key
  int64_t add(const std::string& key, int64_t value) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  bool deleteKey(const std::string& key) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  int64_t getNumKeys() override;

  void close();

 private:
  // The connection, which clones share.
  struct Line {
    std::mutex mutex;
    std::shared_ptr<HubConnection> connection;
  };

  HubStore(std::shared_ptr<Line> line, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), line_(std::move(line)) {}

  template <class Read>
  auto asked(const Json& question, std::chrono::milliseconds limit, Read&& read);

  std::shared_ptr<Line> line_;
};

}  // namespace shardway::link
