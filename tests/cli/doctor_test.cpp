#include <gtest/gtest.h>

#include <fstream>

#include "cli/doctor/machine_lines.h"
#include "cli/doctor/variable_lines.h"

namespace shardway::testing {
namespace {

using namespace cli;

constexpr int64_t kGiB = int64_t{1} << 30;

MachineFacts good_machine() {
  return {.online_cores = 8,
          .allowed_cores = 8,
          .physical_bytes = 64 * kGiB,
          .available_bytes = 60 * kGiB,
          .huge_pages = "always [madvise] never",
          .dev_shm_bytes = 32 * kGiB,
          .numa_nodes = 1,
          .open_files = 4096};
}

DoctorLine line_of(const MachineFacts& facts, const std::string& subject) {
  for (const DoctorLine& line : machine_lines(facts)) {
    if (line.subject == subject) return line;
  }
  throw std::invalid_argument("there is no line about " + subject);
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(Doctor, AGoodMachineIsWellAndNeedsNoAdvice) {
  for (const DoctorLine& line : machine_lines(good_machine())) {
    EXPECT_EQ(line.health, Health::ok) << line.subject << ": " << line.what;
    EXPECT_EQ(line.advice, "") << line.subject;
  }
}

TEST(Doctor, AControlGroupThatPaysForOneCoreIsSlow) {
  MachineFacts facts = good_machine();
  facts.core_quota = 1;
  const DoctorLine line = line_of(facts, "cores");
  EXPECT_EQ(line.health, Health::slow);
  EXPECT_EQ(line.what, "1 core for ranks; its control group pays for 1 of 8");
  EXPECT_TRUE(says(line.advice, "--cpus")) << line.advice;
}

TEST(Doctor, AnAffinityOfOneCoreIsSlowAndOneOfTwoIsTold) {
  MachineFacts facts = good_machine();
  facts.allowed_cores = 1;
  EXPECT_EQ(line_of(facts, "cores").health, Health::slow);
  facts.allowed_cores = 2;
  EXPECT_EQ(line_of(facts, "cores").health, Health::ok);
  EXPECT_EQ(line_of(facts, "cores").what, "2 cores for ranks; this process may run on 2 of 8");
}

TEST(Doctor, LittleMemoryAndFewDescriptorsAreSlow) {
  MachineFacts facts = good_machine();
  facts.available_bytes = kGiB / 2;
  facts.open_files = 256;
  EXPECT_EQ(line_of(facts, "memory").health, Health::slow);
  EXPECT_TRUE(says(line_of(facts, "memory").what, "512 MiB of 64 GiB")) << line_of(facts, "memory").what;
  EXPECT_EQ(line_of(facts, "descriptors").health, Health::slow);
  EXPECT_TRUE(says(line_of(facts, "descriptors").advice, "ulimit -n"));
}

TEST(Doctor, NoSharedFolderIsSlowForOthersAndSaysSo) {
  MachineFacts facts = good_machine();
  facts.dev_shm_bytes = std::nullopt;
  EXPECT_EQ(line_of(facts, "/dev/shm").health, Health::slow);
  EXPECT_TRUE(says(line_of(facts, "/dev/shm").what, "missing"));
  EXPECT_TRUE(says(line_of(facts, "/dev/shm").what, "shardway does not need it"));
  facts.dev_shm_bytes = int64_t{64} << 20;  // as Docker makes it
  EXPECT_EQ(line_of(facts, "/dev/shm").health, Health::slow);
  EXPECT_TRUE(says(line_of(facts, "/dev/shm").advice, "--shm-size"));
}

TEST(Doctor, HugePagesThatAreOffAreSlow) {
  MachineFacts facts = good_machine();
  facts.huge_pages = "always madvise [never]";
  EXPECT_EQ(line_of(facts, "huge pages").health, Health::slow);
  facts.huge_pages = "";
  EXPECT_EQ(line_of(facts, "huge pages").health, Health::slow);
}

// The first line about a variable.
DoctorLine line_of(const SetVariable& variable) { return variable_lines({variable}).front(); }

TEST(Doctor, AMisspeltVariableIsBrokenAndTheRightOneIsNamed) {
  const DoctorLine line = line_of(SetVariable{.name = "SHARDWAY_TRANSPROT", .value = "shm"});
  EXPECT_EQ(line.health, Health::broken);
  EXPECT_EQ(line.what, "SHARDWAY_TRANSPROT is set, and shardway knows no such variable: it does nothing");
  EXPECT_EQ(line.advice, "did you mean SHARDWAY_TRANSPORT?");
  EXPECT_EQ(line_of(SetVariable{.name = "SHARDWAYTUNING", .value = ""}).advice,
            "did you mean SHARDWAY_TUNING?");
}

TEST(Doctor, AVariableLikeNoOtherIsBrokenToo) {
  const DoctorLine line = line_of(SetVariable{.name = "SHARDWAY_FAVOURITE_COLOUR", .value = "blue"});
  EXPECT_EQ(line.health, Health::broken);
  EXPECT_EQ(line.advice, "unset SHARDWAY_FAVOURITE_COLOUR");
}

TEST(Doctor, AValueThatShardwayRefusesIsBroken) {
  const std::vector<SetVariable> refused = {{.name = "SHARDWAY_TRANSPORT", .value = "tcp"},
                                            {.name = "SHARDWAY_CHECK", .value = "maybe"},
                                            {.name = "SHARDWAY_LOG", .value = "loud"},
                                            {.name = "SHARDWAY_TUNING", .value = "swap=2"},
                                            {.name = "SHARDWAY_CACHE_BYTES", .value = "1GiB"},
                                            {.name = "SHARDWAY_TOPOLOGY", .value = "/no/such/file.json"}};
  for (const SetVariable& variable : refused) {
    const DoctorLine line = line_of(variable);
    EXPECT_EQ(line.health, Health::broken) << variable.name;
    EXPECT_TRUE(says(line.what, variable.name + "=" + variable.value)) << line.what;
  }
}

TEST(Doctor, KnownVariablesWithGoodValuesAreWellAndNoValueIsShown) {
  const DoctorLines lines = variable_lines({{.name = "SHARDWAY_CHECK", .value = "Yes"},
                                            {.name = "SHARDWAY_LINK_SECRET", .value = "hush"},
                                            {.name = "SHARDWAY_TRANSPORT", .value = ""}});
  EXPECT_EQ(lines.front().health, Health::ok);
  EXPECT_EQ(lines.front().what, "SHARDWAY_CHECK, SHARDWAY_LINK_SECRET, SHARDWAY_TRANSPORT: known, and valid");
}

TEST(Doctor, WithoutATopologyCostsAreCalledEstimates) {
  const DoctorLines lines = variable_lines({});
  ASSERT_EQ(lines.back().subject, "topology");
  EXPECT_TRUE(says(lines.back().what, "estimates")) << lines.back().what;
}

TEST(Doctor, HealthHasAWordAndNoOther) {
  for (const Health health : {Health::ok, Health::slow, Health::broken})
    EXPECT_EQ(health_named(name_of(health)), health);
  EXPECT_THROW(health_named("fine"), std::invalid_argument);
}

}  // namespace
}  // namespace shardway::testing
