// Memory that is kept from call to call, so that its pages are touched only once.
#pragma once

#include <cstddef>
#include <memory>

namespace shardway::shm {

class Kept {
 public:
  // At least this many bytes, with what an earlier call left in them. They last until more are asked for.
  std::byte* of(size_t bytes) {
    if (bytes > bytes_) memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes_ = bytes);
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

}  // namespace shardway::shm
