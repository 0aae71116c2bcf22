#include "spans/measured_tuning.h"

#include <stdexcept>

#include "plan/text/calibration_file.h"
#include "shm/memory/machine.h"

namespace shardway {
namespace {

int8_t pin_of(const std::optional<MeasuredChoice>& choice) {
  const std::optional<bool> is_on = choice ? choice->is_on() : std::nullopt;
  return is_on ? static_cast<int8_t>(*is_on) : int8_t{-1};
}

}  // namespace

shm::TuningPins pins_of_topology_file(int64_t ranks) try {
  const MeasuredChoices choices = choices_in(default_topology_file(), shm::model_of_processor(), ranks);
  return {.swap = pin_of(choices.swap), .hand_back = pin_of(choices.hand_back)};
} catch (const std::invalid_argument&) {
  return {};
}

}  // namespace shardway
