#include "link/talk/parsed.h"

#include <vector>

#include "link/talk/wire.h"

namespace shardway::link {
namespace {

// Builds a value from what a parser tells of it.
class JsonBuilder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*members*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*items*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw NotOurs(std::string("a message is not JSON: ") + error.what());
  }

  Json take() { return std::move(root_); }

 private:
  // Returns where the value stands now.
  Json& placed(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    members.emplace_back(std::move(key_), std::move(value));
    return members.back().second;
  }

  bool add(Json value) {
    placed(std::move(value));
    return true;
  }

  bool open(Json value) {
    open_.push_back(&placed(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // outermost first; only the innermost one grows
  std::string key_;
};

}  // namespace

Json parsed(const std::string& text) {
  JsonBuilder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace shardway::link
