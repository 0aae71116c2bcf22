#include "plan/text/json.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "plan/geometry/number_text.h"

namespace shardway {
namespace {

constexpr int kDeepestNesting = 64;

// nlohmann's message without its own error number.
std::string without_code(const std::string& what) {
  const size_t bracket = what.find("] ");
  return bracket == std::string::npos ? what : what.substr(bracket + 2);
}

}  // namespace

Json parse_json(const std::string& text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw std::invalid_argument(file + ": the file is empty; it must hold a JSON object");
  }
  const auto refuse_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepestNesting) {
      throw std::invalid_argument(file + ": nested more than " + std::to_string(kDeepestNesting) + " deep");
    }
    return true;
  };
  try {
    return Json::parse(text, refuse_depth);
  } catch (const Json::exception& error) {
    throw std::invalid_argument(file + ": not JSON: " + without_code(error.what()));
  }
}

void JsonField::refuse(const std::string& why) const {
  throw std::invalid_argument(file_ + ": " + (path_.empty() ? "the document" : path_) + " " + why);
}

bool JsonField::has(const std::string& key) const { return value_.is_object() && value_.contains(key); }

JsonField JsonField::at(const std::string& key) const {
  if (!value_.is_object()) refuse(std::string("is ") + value_.type_name() + "; it must be an object");
  if (!value_.contains(key)) refuse("has no field '" + key + "'");
  return {value_.at(key), file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<JsonField> JsonField::items() const {
  if (!value_.is_array()) refuse(std::string("is ") + value_.type_name() + "; it must be an array");
  std::vector<JsonField> result;
  for (size_t i = 0; i < value_.size(); ++i) {
    result.emplace_back(value_[i], file_, path_ + "[" + std::to_string(i) + "]");
  }
  return result;
}

std::vector<std::string> JsonField::keys() const {
  if (!value_.is_object()) refuse(std::string("is ") + value_.type_name() + "; it must be an object");
  std::vector<std::string> result;
  for (const auto& [key, _] : value_.items()) result.push_back(key);
  return result;
}

double JsonField::number() const {
  if (!value_.is_number()) refuse(std::string("is ") + value_.type_name() + "; it must be a number");
  const auto number = value_.get<double>();
  if (!std::isfinite(number)) refuse("is not finite");
  return number;
}

int64_t JsonField::integer() const {
  if (!value_.is_number_integer()) refuse(std::string("is ") + value_.dump() + "; it must be a whole number");
  if (value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    refuse("is " + value_.dump() + ", which is too large");
  }
  return value_.get<int64_t>();
}

bool JsonField::truth() const {
  if (!value_.is_boolean()) refuse(std::string("is ") + value_.dump() + "; it must be true or false");
  return value_.get<bool>();
}

std::string JsonField::text() const {
  if (!value_.is_string()) refuse(std::string("is ") + value_.type_name() + "; it must be a string");
  return value_.get<std::string>();
}

std::vector<int64_t> JsonField::integers() const {
  std::vector<int64_t> result;
  for (const JsonField& item : items()) result.push_back(item.integer());
  return result;
}

std::vector<std::string> JsonField::texts() const {
  std::vector<std::string> result;
  for (const JsonField& item : items()) result.push_back(item.text());
  return result;
}

void JsonField::allow_only(const std::vector<std::string>& known) const {
  for (const std::string& key : keys()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      refuse("has the unknown field '" + key + "'; known are " + join(known, ", "));
    }
  }
}

}  // namespace shardway
