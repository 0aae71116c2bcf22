#include "cli/doctor/variable_lines.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "shardway/topology.h"
#include "shm/join/pins.h"

namespace shardway::cli {
namespace {

constexpr std::string_view kPrefix = "SHARDWAY";
constexpr size_t kMostSlips = 3;  // letters in which a misspelt name differs

// Throws std::invalid_argument if shardway refuses the value.
using ValueCheck = void (*)(const std::string& value);

void check_one_of(const std::string& value, std::initializer_list<std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    if (value == word) return;
    text += (text.empty() ? "" : ", ") + std::string(word);
  }
  throw std::invalid_argument("it is none of " + text);
}

void check_transport(const std::string& value) { check_one_of(value, {"shm", "ipc", "c10d"}); }

void check_yes_or_no(const std::string& value) {
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  check_one_of(word, {"1", "true", "on", "yes", "0", "false", "off", "no"});
}

void check_bytes(const std::string& value) {
  const bool is_number = std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) throw std::invalid_argument("it is not a number of bytes");
}

void check_log(const std::string& value) { check_one_of(value, {"info", "debug"}); }

void check_tuning(const std::string& value) { (void)shm::pins_of(value); }

void check_topology(const std::string& value) { (void)read_topology(value); }

struct KnownVariable {
  std::string_view name;
  ValueCheck check = nullptr;
};

constexpr std::array kKnown = {
    KnownVariable{.name = "SHARDWAY_TRANSPORT", .check = check_transport},
    KnownVariable{.name = "SHARDWAY_CHECK", .check = check_yes_or_no},
    KnownVariable{.name = "SHARDWAY_TUNING", .check = check_tuning},
    KnownVariable{.name = "SHARDWAY_TOPOLOGY", .check = check_topology},
    KnownVariable{.name = "SHARDWAY_CACHE_BYTES", .check = check_bytes},
    KnownVariable{.name = "SHARDWAY_LOG", .check = check_log},
    KnownVariable{.name = "SHARDWAY_QUIET"},
    KnownVariable{.name = "SHARDWAY_LINK_SECRET"},
    KnownVariable{.name = "SHARDWAY_JOB"},
    KnownVariable{.name = "SHARDWAY_LAUNCH_PART"},
    // The project's own builds and tests.
    KnownVariable{.name = "SHARDWAY_TEST_SEED"},
    KnownVariable{.name = "SHARDWAY_SEED"},
    KnownVariable{.name = "SHARDWAY_LARGE"},
    KnownVariable{.name = "SHARDWAY_MPI_WHOLE"},
    KnownVariable{.name = "SHARDWAY_REFITS"},
    KnownVariable{.name = "SHARDWAY_CHURN_ROUNDS"},
    KnownVariable{.name = "SHARDWAY_GPU_TESTS_ON"},
    KnownVariable{.name = "SHARDWAY_CONTRACT_DIR"},
    KnownVariable{.name = "SHARDWAY_WRITE_GOLDEN"},
    KnownVariable{.name = "SHARDWAY_OTHER_PYTHON"},
    KnownVariable{.name = "SHARDWAY_VLLM_PYTHON"},
};

// How many letters to change, add or take away to make one word of the other.
size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::optional<std::string> meant_by(const std::string& name) {
  const auto slips = [&](const KnownVariable& known) { return slips_between(name, known.name); };
  const auto nearest =
      std::min_element(kKnown.begin(), kKnown.end(),
                       [&](const KnownVariable& a, const KnownVariable& b) { return slips(a) < slips(b); });
  return slips(*nearest) <= kMostSlips ? std::optional(std::string(nearest->name)) : std::nullopt;
}

DoctorLine unknown_line(const SetVariable& variable) {
  const auto meant = meant_by(variable.name);
  return {.subject = "environment",
          .health = Health::broken,
          .what = variable.name + " is set, and shardway knows no such variable: it does nothing",
          .advice = meant ? "did you mean " + *meant + "?" : "unset " + variable.name};
}

std::optional<DoctorLine> complaint_of(const SetVariable& variable) {
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const KnownVariable& it) { return it.name == variable.name; });
  if (known == kKnown.end()) return unknown_line(variable);
  if (known->check == nullptr || variable.value.empty()) return std::nullopt;
  try {
    known->check(variable.value);
    return std::nullopt;
  } catch (const std::exception& refused) {
    return DoctorLine{.subject = "environment",
                      .health = Health::broken,
                      .what = variable.name + "=" + variable.value + " is refused: " + refused.what(),
                      .advice = "give it another value, or unset it"};
  }
}

DoctorLine topology_line(const std::vector<SetVariable>& variables) {
  for (const SetVariable& variable : variables) {
    if (variable.name == "SHARDWAY_TOPOLOGY" && !variable.value.empty())
      return {.subject = "topology", .what = "plans are priced with the figures of " + variable.value};
  }
  return {.subject = "topology",
          .what = "plans are priced with assumed figures: their costs are estimates",
          .advice = "shardway calibrate -n N -o FILE measures this machine; SHARDWAY_TOPOLOGY=FILE uses it"};
}

}  // namespace

std::vector<SetVariable> variables_of_environment() {
  std::vector<SetVariable> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    variables.push_back(
        {.name = std::string(text.substr(0, equals)), .value = std::string(text.substr(equals + 1))});
  }
  std::sort(variables.begin(), variables.end(),
            [](const SetVariable& a, const SetVariable& b) { return a.name < b.name; });
  return variables;
}

DoctorLines variable_lines(const std::vector<SetVariable>& variables) {
  DoctorLines lines;
  bool has_topology = true;
  for (const SetVariable& variable : variables) {
    auto complaint = complaint_of(variable);
    if (!complaint) continue;
    has_topology = has_topology && variable.name != "SHARDWAY_TOPOLOGY";
    lines.push_back(std::move(*complaint));
  }
  if (lines.empty()) {
    std::string names;
    for (const SetVariable& variable : variables) names += (names.empty() ? "" : ", ") + variable.name;
    lines.push_back(
        {.subject = "environment",
         .what = names.empty() ? "no variable of shardway's is set" : names + ": known, and valid"});
  }
  if (has_topology) lines.push_back(topology_line(variables));
  return lines;
}

}  // namespace shardway::cli
