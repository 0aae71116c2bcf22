// One line of a record, read.
#pragma once

#include <optional>

#include "record/record_file.h"
#include "record/recorded_call.h"

namespace shardway::record {

// What a line says; nothing if it makes no sense or changes at every look.
std::optional<RecordedCall> call_in(const RecordLine& line);

}  // namespace shardway::record
