#include "shm/memory/processor.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

cpu_set_t set_of(std::initializer_list<int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

bool is_same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b); }

TEST(Processors, HaveNamesWhateverTheirNumber) {
  EXPECT_STREQ(name_of(Processor::amd_zen), "AMD Zen");
  EXPECT_STREQ(name_of(static_cast<Processor>(200)), "an unknown processor");
}

TEST(Cores, AreReadAsTheSystemListsThem) {
  EXPECT_TRUE(is_same(cores_in("0"), set_of({0})));
  EXPECT_TRUE(is_same(cores_in("0-3,8"), set_of({0, 1, 2, 3, 8})));
  EXPECT_TRUE(is_same(cores_in("2,4-5"), set_of({2, 4, 5})));
  for (const char* nothing : {"", "x", "-1", "5-3", "99999", "0-99999", "99999999999999999999"})
    EXPECT_TRUE(is_same(cores_in(nothing), set_of({}))) << nothing;
}

TEST(Cores, ShareACacheWhereItHasThemAll) {
  const cpu_set_t cache = set_of({0, 1, 2, 3});
  EXPECT_TRUE(share_cache(std::vector{set_of({0}), set_of({1, 2})}, cache));
  EXPECT_FALSE(share_cache(std::vector{set_of({0}), set_of({3, 4})}, cache));
  EXPECT_FALSE(share_cache(std::vector{set_of({0}), set_of({})}, cache));
  EXPECT_FALSE(share_cache(std::vector{set_of({0})}, set_of({})));
}

TEST(Cores, OfThisMachineAreAtACacheOrItIsNotKnown) {
  const cpu_set_t allowed = allowed_cores();
  const cpu_set_t cache = cores_at_cache_of(allowed);
  cpu_set_t common;
  CPU_AND(&common, &allowed, &cache);
  EXPECT_EQ(CPU_COUNT(&common) > 0, CPU_COUNT(&cache) > 0);
  EXPECT_EQ(CPU_COUNT(&common) > 0, share_cache(std::vector{common}, cache));
}

}  // namespace
}  // namespace shardway::shm
