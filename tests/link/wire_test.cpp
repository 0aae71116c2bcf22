// What travels on a link, byte for byte as tests/python/test_link_wire.py has it, and bytes that nobody
// should send.
#include "link/talk/wire.h"

#include <gtest/gtest.h>

#include "link/talk/base64.h"
#include "link/talk/claim.h"
#include "link/talk/parsed.h"
#include "link/talk/secret.h"

namespace shardway::testing {
namespace {

using link::Claim;
using link::Inbox;
using link::NotOurs;
using link::packed;

std::string with_length(const std::string& body) {
  return {std::string(2, '\0') + static_cast<char>(body.size() >> 8) + static_cast<char>(body.size()) + body};
}

TEST(LinkWire, AMessageIsALengthAndCompactJsonInTheOrderGiven) {
  const Json message = {{"do", "receive"}, {"problems", Json::array()}, {"version", 0}, {"failed", "\u00e9"}};
  EXPECT_EQ(packed(message), with_length(R"({"do":"receive","problems":[],"version":0,"failed":"\u00e9"})"));
}

TEST(LinkWire, AMessageIsReadAsItWasWritten) {
  const std::string text =
      R"({"b":{"d":[1,-2,18446744073709551615,0.5,true,null,[],{}],"c":"\u00e9\n"},"a":[[["x"]]],"":false})";
  EXPECT_EQ(link::parsed(text), Json::parse(text));
  EXPECT_EQ(link::parsed(text).dump(-1, ' ', true), text);
  EXPECT_EQ(link::parsed(R"({"a":1,"a":2})").at("a"), 1);
  for (const char* wrong : {"", "{", R"({"a"})", "[1,]", "nul", "{}{}", "\xff"})
    EXPECT_THROW(link::parsed(wrong), NotOurs) << wrong;
}

TEST(LinkWire, AnInboxHandsOutMessagesAsTheyAreComplete) {
  const std::string bytes = packed({{"is", "joined"}}) + packed({{"is", "nudge"}});
  Inbox inbox;
  for (const char byte : bytes.substr(0, 10)) {
    EXPECT_EQ(inbox.next(), std::nullopt);
    inbox.add(std::string(1, byte));
  }
  inbox.add(bytes.substr(10));
  EXPECT_EQ(inbox.next(), (Json{{"is", "joined"}}));
  EXPECT_EQ(inbox.next(), (Json{{"is", "nudge"}}));
  EXPECT_TRUE(inbox.is_empty());
}

TEST(LinkWire, AStrangersMessageIsShort) {
  Inbox inbox;
  inbox.add(std::string("\x00\x00\x10\x01", 4));
  EXPECT_THROW(inbox.next(), NotOurs);
  inbox.trust();
  EXPECT_EQ(inbox.next(), std::nullopt);
  inbox.add(std::string(4097, ' '));
  EXPECT_THROW(inbox.next(), NotOurs);
}

TEST(LinkWire, WhatIsNoMessageIsRefused) {
  for (const std::string& body : {std::string(), std::string("[1]"), std::string("7"),
                                  std::string("{\"is\":"), std::string("GET / HTTP"), std::string("\xff\xfe"),
                                  std::string("{\"a\":\"\xc3\"}"), std::string(4000, '[')}) {
    Inbox inbox;
    inbox.add(with_length(body));
    EXPECT_THROW(inbox.next(), NotOurs) << body;
  }
}

TEST(LinkWire, MembersOfAMessageAreChecked) {
  const Json message = {{"version", "1"}, {"generation", 7}};
  EXPECT_THROW(link::integer_in(message, "version"), NotOurs);
  EXPECT_THROW(link::text_in(message, "generation"), NotOurs);
  EXPECT_THROW(link::text_in(message, "is"), NotOurs);
  EXPECT_EQ(link::text_or(message, "generation", "none"), "none");
  EXPECT_TRUE(link::truth_or(message, "version", true));
}

// The expected value is Python's: hmac.new(b"open", b'["member", "…", …]', hashlib.sha256).hexdigest().
TEST(LinkWire, AProofIsOfTheTextThatPythonWrites) {
  const Claim claim{.role = "g\u00e9n", .rank = 1, .size = 2, .process = "by hand", .job = ""};
  const Json said = Json::array({"00", "11", claim.said(), nullptr});
  EXPECT_EQ(
      link::spaced_text(said),
      R"(["00", "11", {"role": "g\u00e9n", "rank": 1, "size": 2, "process": "by hand", "job": ""}, null])");
  EXPECT_EQ(link::proof("open", "member", said),
            "493d9d12eb57a1d24230cd366fad39650e383da68cc437b74841a4bc84225d4a");
  EXPECT_TRUE(link::is_proof("ab", "ab"));
  EXPECT_FALSE(link::is_proof("aB", "ab"));
  EXPECT_FALSE(link::is_proof("abc", "ab"));
  EXPECT_FALSE(link::is_proof(nullptr, "ab"));
}

TEST(LinkWire, BytesTravelAsBase64) {
  const auto bytes = [](const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); };
  const std::pair<const char*, const char*> rows[] = {{"", ""},
                                                      {"f", "Zg=="},
                                                      {"fo", "Zm8="},
                                                      {"foo", "Zm9v"},
                                                      {"foob", "Zm9vYg=="},
                                                      {"fooba", "Zm9vYmE="},
                                                      {"foobar", "Zm9vYmFy"}};  // RFC 4648
  for (const auto& [plain, text] : rows) {
    EXPECT_EQ(link::base64_of(bytes(plain)), text);
    EXPECT_EQ(link::bytes_of_base64(text), bytes(plain));
  }
  EXPECT_EQ(link::base64_of({0xff, 0xfe, 0xfb}), "//77");
  for (const char* text : {"Zg=", "Z", "Zg= ", "Zm9v\n", "=Zm9", "Z=9v", "Zm9vYg=v"})
    EXPECT_THROW(link::bytes_of_base64(text), NotOurs) << text;
}

TEST(LinkWire, AClaimIsChecked) {
  Json said = Claim::own("engine", 1, 2).said();
  EXPECT_EQ(Claim::read(said).role, "engine");
  said["rank"] = 2;
  EXPECT_THROW(Claim::read(said), NotOurs);
  said["rank"] = "1";
  EXPECT_THROW(Claim::read(said), NotOurs);
  EXPECT_THROW(Claim::read(nullptr), NotOurs);
  EXPECT_THROW(Claim::own("", 0, 1), std::invalid_argument);
  EXPECT_THROW(Claim::own("a\nb", 0, 1), std::invalid_argument);
  EXPECT_THROW(Claim::own(std::string(65, 'a'), 0, 1), std::invalid_argument);
  EXPECT_THROW(Claim::own("engine", -1, 1), std::invalid_argument);
}

}  // namespace
}  // namespace shardway::testing
