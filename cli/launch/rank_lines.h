// What a rank of `shardway launch` prints on one of its two streams, cut into lines.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "shm/memory/file.h"

namespace shardway::cli {

// A line ends in a line feed or, as those of progress bars do, in a carriage return; each is shown at once.
class RankLines {
 public:
  RankLines(std::string before, FILE* to) : before_(std::move(before)), to_(to) {}

  // Shows what is there to read, but no more than a pipe holds: others have something to say as well. Returns
  // false at the end.
  bool read_from(const shm::File& from);

  // Shows a last line that has no end.
  void show_rest();

 private:
  void show_whole_lines();
  void show(std::string_view line, std::string_view end);

  std::string before_;
  FILE* to_;
  std::string text_;
  bool is_after_return_ = false;  // the last line ended in one; a line feed that follows belongs to it
};

}  // namespace shardway::cli
