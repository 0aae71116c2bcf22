// A group as errors name it.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shardway::backend {

class Identity {
 public:
  // `global_ranks` are by rank; empty if the ranks are the world's.
  Identity(std::string name, const std::vector<uint64_t>& global_ranks);

  const std::string& name() const { return name_; }

  // Returns the text of an error. If the group numbers its ranks differently from the world, adds the global
  // rank of each rank that the text names.
  std::string explained(const std::string& text) const;

  // Runs `body`; adds the explanation to its errors.
  template <class Body>
  void explain(Body&& body) const {
    if (global_ranks_.empty()) return body();
    try {
      body();
    } catch (const c10::DistBackendError& error) {
      TORCH_CHECK_WITH(DistBackendError, false, explained(error.what_without_backtrace()));
    } catch (const c10::OutOfMemoryError& error) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, explained(error.what_without_backtrace()));
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, explained(error.what_without_backtrace()));
    }
  }

 private:
  std::string name_;
  std::vector<uint64_t> global_ranks_;  // empty if the numbers are the same
};

}  // namespace shardway::backend
