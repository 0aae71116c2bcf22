#include "shardway/topology.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "arbitrary_layouts.h"
#include "refusal.h"

namespace shardway::testing {
namespace {

// A file that is gone after the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("shardway_topology_" + std::to_string(std::hash<std::string>()(text)) + "_" +
               std::to_string(Dice(std::random_device()()).between(int64_t{0}, int64_t{1} << 40)) +
               ".json")) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Sets a variable of the environment, or removes it, until the end of the test.
class Environment {
 public:
  Environment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    put(value);
  }
  ~Environment() { put(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void put(const char* value) const {
    if (value != nullptr) {
      setenv(name_.c_str(), value, 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  std::string name_;
  std::optional<std::string> before_;
};

const char* const kFile = R"({
  "version": 1,
  "source": "measured",
  "base_us": 1.25,
  "within_host": {"latency_us": 0.5, "gib_per_s": 40},
  "between_hosts": {"latency_us": 3, "gib_per_s": 2.5},
  "dims": {"tp": {"latency_us": 0.25, "gib_per_s": 80}},
  "hosts": {"ranks_per_host": 8},
  "copy_gib_per_s": 12,
  "reduce_gib_per_s": 6
})";

// The file with one piece of its text replaced.
std::string file_with(const std::string& piece, const std::string& by) {
  std::string text = kFile;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), by);
}

template <class... Words>
::testing::AssertionResult refused(const std::string& text, const Words&... words) {
  return refuses_with([&] { topology_from_json(text, "my.json"); }, "my.json", words...);
}

TEST(Topology, IsReadFromAFile) {
  const TemporaryFile file(kFile);
  const Topology topology = read_topology(file.path());
  EXPECT_EQ(topology.base_us, 1.25);
  EXPECT_EQ(topology.within_host, (Link{.latency_us = 0.5, .gib_per_s = 40}));
  EXPECT_EQ(topology.between_hosts, (Link{.latency_us = 3, .gib_per_s = 2.5}));
  EXPECT_EQ(topology.dims.at("tp"), (Link{.latency_us = 0.25, .gib_per_s = 80}));
  EXPECT_EQ(topology.ranks_per_host, 8);
  EXPECT_EQ(topology.copy_gib_per_s, 12);
  EXPECT_EQ(topology.reduce_gib_per_s, 6);
  EXPECT_EQ(topology.host_of(7), 0);
  EXPECT_EQ(topology.host_of(8), 1);
}

TEST(Topology, WrittenAndReadIsTheSame) {
  Dice dice;
  for (int i = 0; i < 500; ++i) {
    const Topology topology = any_topology(dice, 12);
    EXPECT_EQ(topology_from_json(to_json(topology)), topology) << to_json(topology);
  }
  EXPECT_EQ(topology_from_json(to_json(Topology{})), Topology{});
}

TEST(Topology, AssumesTheSeedsFigures) {
  const Topology topology;
  EXPECT_EQ(topology.base_us, 6.6);
  EXPECT_EQ(topology.within_host, (Link{.latency_us = 0.6, .gib_per_s = 87.7}));
  EXPECT_EQ(topology.between_hosts.latency_us, 2.7);
  EXPECT_NEAR(topology.between_hosts.gib_per_s, 87.7 * 0.22, 1e-12);
  EXPECT_EQ(topology.host_of(1'000'000), 0);
}

TEST(Topology, FindsALinkByNameBeforeNumber) {
  const Link by_name{.latency_us = 1, .gib_per_s = 1};
  const Link by_number{.latency_us = 2, .gib_per_s = 2};
  const Topology topology{.dims = {{"tp", by_name}, {"1", by_number}}};
  EXPECT_EQ(topology.link_of(Mesh({2, 2}, {"dp", "tp"}), 1), by_name);
  EXPECT_EQ(topology.link_of(Mesh({2, 2}), 1), by_number);
  EXPECT_EQ(topology.link_of(Mesh({2, 2}, {"tp", "dp"}), 1), by_number);
  EXPECT_EQ(topology.link_of(Mesh({2, 2}), 0), topology.within_host);
}

TEST(Topology, EqualFiguresAreEqualWhereverTheyComeFrom) {
  EXPECT_EQ((Topology{.source = "given"}), (Topology{.source = "measured"}));
  EXPECT_FALSE((Topology{.base_us = 1}) == Topology{});
  EXPECT_FALSE((Topology{.host_of_rank = {0}}) == Topology{});
}

TEST(TopologyFile, ThatIsMissingIsRefused) {
  EXPECT_TRUE(refuses_with([] { read_topology("/nowhere/topology.json"); }, "/nowhere/topology.json"));
  EXPECT_TRUE(refuses_with([] { read_topology("/tmp"); }, "/tmp"));
  EXPECT_TRUE(refuses_with([] { read_topology(""); }, "read"));
}

TEST(TopologyFile, ThatIsTruncatedIsRefusedAtEveryByte) {
  const std::string text = kFile;
  for (size_t length = 0; length < text.size() - 1; ++length)
    EXPECT_TRUE(refused(text.substr(0, length))) << length;
}

TEST(TopologyFile, ThatIsNotJsonIsRefused) {
  for (const char* text : {"hello", "{,}", "{\"version\": 1,}", "\x80\xff", "<xml/>", "{} {}", " \n\t"})
    EXPECT_TRUE(refused(text)) << text;
  EXPECT_TRUE(refused(std::string("{\"version\": 1\0}", 15)));
}

TEST(TopologyFile, ThatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "1", "null", "\"version\"", "[{\"version\": 1}]"})
    EXPECT_TRUE(refused(text, "object")) << text;
}

TEST(TopologyFile, OfAnotherVersionIsRefused) {
  EXPECT_TRUE(refused(file_with("\"version\": 1", "\"version\": 3"), "version", "3", "1"));
  EXPECT_TRUE(refused(file_with("\"version\": 1", "\"version\": 0"), "version"));
  EXPECT_TRUE(refused(file_with("\"version\": 1", "\"version\": \"1\""), "version"));
  EXPECT_TRUE(refused(file_with("\"version\": 1", "\"version\": 1.5"), "version"));
  EXPECT_TRUE(refused(file_with("\"version\": 1", "\"version\": 99999999999999999999"), "version"));
  EXPECT_TRUE(refused(file_with("\"version\": 1,", ""), "version"));
}

TEST(TopologyFile, WithFiguresThatAreNoneIsRefusedByField) {
  for (const char* figure :
       {"NaN", "Infinity", "1e999", "-1e999", "-1", "\"7\"", "null", "[]", "{}", "true"}) {
    EXPECT_TRUE(refused(file_with("1.25", figure))) << figure;
    EXPECT_TRUE(refused(file_with("0.5", figure))) << figure;
    EXPECT_TRUE(refused(file_with("40", figure))) << figure;
  }
  EXPECT_TRUE(refused(file_with("1.25", "-1"), "base_us"));
  EXPECT_TRUE(refused(file_with("1.25", "\"7\""), "base_us", "number"));
  EXPECT_TRUE(refused(file_with("0.5", "-1"), "within_host.latency_us"));
  EXPECT_TRUE(refused(file_with("40", "0"), "within_host.gib_per_s"));
  EXPECT_TRUE(refused(file_with("2.5", "-2"), "between_hosts.gib_per_s"));
  EXPECT_TRUE(refused(file_with("80", "null"), "dims.tp.gib_per_s"));
  EXPECT_TRUE(refused(file_with("12", "-12"), "copy_gib_per_s"));
  EXPECT_TRUE(refused(file_with("\"reduce_gib_per_s\": 6", "\"reduce_gib_per_s\": -6"), "reduce_gib_per_s"));
}

TEST(TopologyFile, WithoutAFigureThatItNeedsIsRefusedByField) {
  EXPECT_TRUE(refused(file_with("\"base_us\": 1.25,", ""), "base_us"));
  EXPECT_TRUE(refused(file_with("\"latency_us\": 0.5, ", ""), "within_host", "latency_us"));
  EXPECT_TRUE(refused(file_with(", \"gib_per_s\": 40", ""), "within_host", "gib_per_s"));
  EXPECT_TRUE(refused(file_with("{\"latency_us\": 0.5, \"gib_per_s\": 40}", "{}"), "within_host"));
  EXPECT_TRUE(refused(file_with("\"between_hosts\": {\"latency_us\": 3, \"gib_per_s\": 2.5},", ""), "hosts",
                      "between_hosts"));
}

TEST(TopologyFile, WithUnknownFieldsIsRefusedByField) {
  EXPECT_TRUE(refused(file_with("\"base_us\"", "\"bose_us\": 2, \"base_us\""), "bose_us", "base_us"));
  EXPECT_TRUE(
      refused(file_with("\"latency_us\": 0.5", "\"latency_us\": 0.5, \"speed\": 1"), "within_host", "speed"));
  EXPECT_TRUE(refused(file_with("\"ranks_per_host\": 8", "\"ranks\": 8"), "hosts", "ranks"));
}

TEST(TopologyFile, WithHostsThatAreNoneIsRefusedByField) {
  for (const char* ranks : {"0", "-8", "1.5", "\"8\"", "1e30", "[8]"})
    EXPECT_TRUE(refused(file_with("\"ranks_per_host\": 8", std::string("\"ranks_per_host\": ") + ranks),
                        "hosts.ranks_per_host"))
        << ranks;
  EXPECT_TRUE(refused(file_with("\"ranks_per_host\": 8", "\"of_rank\": [0, -1]"), "hosts.of_rank[1]"));
  EXPECT_TRUE(refused(file_with("\"ranks_per_host\": 8", "\"of_rank\": 3"), "hosts.of_rank", "array"));
  EXPECT_TRUE(refused(file_with("{\"ranks_per_host\": 8}", "[]"), "hosts", "object"));
  EXPECT_TRUE(
      refused(file_with("{\"tp\": {\"latency_us\": 0.25, \"gib_per_s\": 80}}", "[]"), "dims", "object"));
}

TEST(TopologyFile, SaysWhetherThereAreTwoLevels) {
  const std::string links =
      R"({"version": 1, "base_us": 1, "within_host": {"latency_us": 1, "gib_per_s": 1},)"
      R"( "between_hosts": {"latency_us": 1, "gib_per_s": 1})";
  const std::string hosts = links + R"(, "hosts": {"ranks_per_host": 4, "two_levels": )";
  const Topology topology = topology_from_json(hosts + "true}}");
  EXPECT_TRUE(topology.two_levels);
  EXPECT_EQ(topology_from_json(to_json(topology)), topology);
  EXPECT_FALSE(topology_from_json(hosts + "false}}").two_levels);
  EXPECT_FALSE(topology_from_json(hosts + "false}}") == topology);
  EXPECT_TRUE(refused(hosts + "1}}", "hosts.two_levels", "true or false"));
  EXPECT_TRUE(
      refused(hosts + R"(true}, "dims": {"tp": {"latency_us": 1, "gib_per_s": 1}}})", "dims", "memory"));
}

TEST(TopologyFile, ThatIsDeeplyNestedIsRefusedWithoutRecursingIntoIt) {
  const std::string open(200'000, '[');
  EXPECT_TRUE(refused(open, "nested"));
  EXPECT_TRUE(refused("{\"notes\": " + open + std::string(200'000, ']') + "}", "nested"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(refused(objects, "nested"));
}

TEST(TopologyFile, ThatIsHugeIsRefusedUnread) {
  const TemporaryFile file("{}");
  const uintmax_t bytes = uintmax_t{200} << 20U;
  std::filesystem::resize_file(file.path(), bytes);  // sparse
  EXPECT_TRUE(refuses_with([&] { read_topology(file.path()); }, file.path(), std::to_string(bytes)));
}

TEST(TopologyRefuses, FiguresOfNoNetwork) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refuses_with([&] { validate(Topology{.base_us = nan}); }, "base_us", "nan"));
  EXPECT_TRUE(refuses_with([] { validate(Topology{.base_us = -1}); }, "base_us", "-1"));
  EXPECT_TRUE(
      refuses_with([] { validate(Topology{.within_host = {.gib_per_s = 0}}); }, "within_host.gib_per_s"));
  EXPECT_TRUE(refuses_with([&] { validate(Topology{.between_hosts = {.latency_us = nan}}); },
                           "between_hosts.latency_us"));
  EXPECT_TRUE(refuses_with(
      [] {
        validate(Topology{.dims = {{"tp", {.gib_per_s = -5}}}});
      },
      "dims.tp.gib_per_s"));
  EXPECT_TRUE(refuses_with([] { validate(Topology{.ranks_per_host = -2}); }, "ranks_per_host", "-2"));
  EXPECT_TRUE(refuses_with([] { validate(Topology{.host_of_rank = {0, -3}}); }, "of_rank", "-3"));
  EXPECT_TRUE(refuses_with([&] { validate(Topology{.copy_gib_per_s = nan}); }, "copy_gib_per_s"));
  EXPECT_TRUE(refuses_with([] { validate(Topology{.reduce_gib_per_s = -1}); }, "reduce_gib_per_s"));
}

TEST(TopologyRefuses, ARankWithoutAHost) {
  EXPECT_TRUE(refuses_with([] { Topology{.host_of_rank = {0, 1}}.host_of(2); }, "of_rank", "2"));
}

TEST(DefaultTopology, IsTheFileInTheEnvironment) {
  const TemporaryFile file(kFile);
  const Environment topology("SHARDWAY_TOPOLOGY", file.path().c_str());
  const Environment local("LOCAL_WORLD_SIZE", "3");
  EXPECT_EQ(default_topology(), topology_from_json(kFile));
}

TEST(DefaultTopology, IsAssumedWithTheRanksThatTorchrunStartedOnThisHost) {
  const Environment topology("SHARDWAY_TOPOLOGY", nullptr);
  const Environment local("LOCAL_WORLD_SIZE", "4");
  EXPECT_EQ(default_topology(), (Topology{.ranks_per_host = 4}));
  EXPECT_EQ(default_topology().source, "assumed");
}

TEST(DefaultTopology, IsOneHostWhereNothingIsSaid) {
  const Environment topology("SHARDWAY_TOPOLOGY", "");
  const Environment local("LOCAL_WORLD_SIZE", nullptr);
  EXPECT_EQ(default_topology(), Topology{});
}

TEST(DefaultTopology, RefusesWhatItCannotRead) {
  const Environment topology("SHARDWAY_TOPOLOGY", nullptr);
  for (const char* ranks : {"0", "-1", "four", "4x", "1e3"}) {
    const Environment local("LOCAL_WORLD_SIZE", ranks);
    EXPECT_TRUE(refuses_with([] { default_topology(); }, "LOCAL_WORLD_SIZE", ranks));
  }
  const Environment missing("SHARDWAY_TOPOLOGY", "/nowhere/topology.json");
  EXPECT_TRUE(refuses_with([] { default_topology(); }, "/nowhere/topology.json"));
}

}  // namespace
}  // namespace shardway::testing
