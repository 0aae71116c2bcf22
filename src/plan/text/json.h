// Checked reading of JSON: every error names the file and the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shardway {

using Json = nlohmann::ordered_json;

// One value of a document, and the way to it ("links[1].latency_us").
class JsonField {
 public:
  JsonField(const Json& value, std::string file, std::string path = {})
      : value_(value), file_(std::move(file)), path_(std::move(path)) {}

  JsonField at(const std::string& key) const;  // refuses when absent
  bool has(const std::string& key) const;
  std::vector<JsonField> items() const;   // of an array
  std::vector<std::string> keys() const;  // of an object

  double number() const;  // finite
  int64_t integer() const;
  bool truth() const;
  std::string text() const;
  bool is_array() const { return value_.is_array(); }
  std::vector<int64_t> integers() const;
  std::vector<std::string> texts() const;

  // Refuses keys that are not in this list: a misspelt field is not overlooked.
  void allow_only(const std::vector<std::string>& known) const;

  // Throws std::invalid_argument: file, field, what is wrong.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Json& value_;
  std::string file_;
  std::string path_;
};

// Throws std::invalid_argument naming `file` and the byte where the text stops being JSON.
Json parse_json(const std::string& text, const std::string& file);

}  // namespace shardway
