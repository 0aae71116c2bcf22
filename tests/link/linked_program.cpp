// A rank of a job in C++ on a link: makes the calls that stand on its input, a word a line, and prints what
// came of each as a line of JSON. Used by tests/python/test_link_cpp.py.
//
//   linked_program ADDRESS ROLE RANK SIZE SECRET TIMEOUT_S
#include <shardway/shardway.h>

#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace sw = shardway;

namespace {

using Json = nlohmann::json;

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 6;

std::vector<double> numbers_in(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// The rows of this rank lie transposed in the middle of a larger matrix.
class Rank {
 public:
  explicit Rank(sw::JobLink link)
      : link_(std::move(link)),
        rows_({kRows, kColumns}, sw::DType::f32, sw::Mesh({link_.size()}), {sw::shard(0)}) {
    const int64_t mine = rows_.box_at(link_.rank()).extent[0];
    fused_ = at::full({kColumns + 2, mine}, NAN);
    bias_ = at::full({5}, NAN, at::kBFloat16);
    part_ = at::zeros({mine, kColumns});
  }

  Json subscribe() {
    target_ = link_.subscribe({{"w", view(), rows_}, {"b", bias_}}, {.cast = true});
    return "subscribed";
  }

  Json subscribe_wrongly() {
    link_.subscribe({{"w", at::zeros({kRows, kColumns - 1})}, {"b", bias_}});
    return "subscribed";
  }

  Json receive() {
    const int64_t version = target_->receive();
    return {{"version", version},
            {"rows", numbers_in(view())},
            {"bias", numbers_in(bias_)},
            {"is_untouched", fused_.slice(0, 0, kColumns + 2, kColumns + 1).isnan().all().item<bool>()},
            {"state", state()}};
  }

  // As a server does: tells of a loss, and waits for the next version.
  Json survive() {
    std::vector<std::string> errors;
    std::vector<Json> states;
    while (errors.size() < 3) {
      try {
        Json found = receive();
        found["errors"] = errors;
        found["states"] = states;
        return found;
      } catch (const c10::DistBackendError& error) {
        errors.emplace_back(error.what_without_backtrace());
        states.push_back(state());
      }
    }
    return {{"errors", errors}};
  }

  // The same to functions: the rows in a buffer that has room for one of both, the bias whole and rounded.
  Json subscribe_loads() {
    const auto take = [this](const std::string& name, const at::Tensor& piece) {
      if (name == refused_) throw std::runtime_error("no such layer");
      TORCH_CHECK(!at::GradMode::is_enabled());
      taken_.push_back({{"name", name},
                        {"dtype", piece.scalar_type() == at::kBFloat16 ? "bfloat16" : "float32"},
                        {"piece", numbers_in(piece)}});
      piece.fill_(NAN);  // nobody else sees that
    };
    const sw::Layout whole({5}, sw::DType::f32, sw::Mesh({link_.size()}), {sw::replicate()});
    const int64_t rows = kRows * kColumns * 4;
    target_ = link_.subscribe({{"b", sw::Load{whole, sw::DType::bf16, take, rows}},
                               {"w", sw::Load{rows_, sw::DType::f32, take, rows_.box_at(0).volume() * 4}}},
                              {.cast = true});
    return "subscribed";
  }

  Json subscribe_loads_wrongly() {
    const auto take = [](const std::string&, const at::Tensor&) {};
    link_.subscribe(
        {{"b", sw::Load{rows_, sw::DType::f32, nullptr}}, {"w", sw::Load{rows_, sw::DType::f32, take, 0}}});
    return "subscribed";
  }

  Json receive_loads() {
    taken_.clear();
    const int64_t version = target_->receive();
    return {{"version", version}, {"taken", taken_}, {"state", state()}};
  }

  // Rank 1 refuses the rows of the next version.
  Json fail() {
    refused_ = link_.rank() == 1 ? "w" : "";
    Json found;
    try {
      target_->receive();
    } catch (const c10::DistBackendError& error) {
      found = {{"DistBackendError", error.what_without_backtrace()}};
    } catch (const std::runtime_error& error) {
      found = {{"runtime_error", error.what()}};
    }
    found["state"] = state();
    found["version"] = target_->version();
    refused_ = "";
    return found;
  }

  Json publish_load() {
    link_.publish({{"w", sw::Load{rows_, sw::DType::f32, [](const std::string&, const at::Tensor&) {}}}});
    return "published";
  }

  Json publish() {
    source_ = link_.publish({{"w", part_, rows_}, {"b", at::arange(5, at::kFloat)}});
    return source_->version();
  }

  // Rows that a dense matrix has, plus 1000 for each version.
  Json send() {
    fill_part();
    return source_->send();
  }

  // What is under way was copied.
  Json send_held() {
    fill_part();
    const int64_t version = source_->send(sw::SendOptions{.wait = false});
    part_.fill_(NAN);
    return {{"version", version}, {"arrived", source_->version()}};
  }

  // The same values in other memory.
  Json send_others() {
    source_->send({{"w", part_ + 5000, rows_}, {"b", at::arange(5, at::kFloat) + 1}});
    return source_->version();
  }

  Json send_others_held() {
    return source_->send({{"w", part_ + 5000, rows_}, {"b", at::arange(5, at::kFloat) + 1}}, {.wait = false});
  }

  Json send_wrongly() { return source_->send({{"w", at::zeros({3})}}); }
  Json explain() { return link_.explain(); }

  Json close() {
    link_.close();
    return "closed";
  }

 private:
  void fill_part() {
    const int64_t first = rows_.box_at(link_.rank()).offset[0] * kColumns;
    part_.copy_((at::arange(part_.numel()) + first + 1000 * ++sent_).view_as(part_));
  }

  at::Tensor view() { return fused_.slice(0, 1, kColumns + 1).t(); }
  Json state() {
    const auto incomplete = target_->incomplete();
    return incomplete ? Json(*incomplete) : Json(nullptr);
  }

  sw::JobLink link_;
  sw::Layout rows_;
  at::Tensor fused_;
  at::Tensor bias_;
  at::Tensor part_;
  int64_t sent_ = 0;
  Json taken_ = Json::array();
  std::string refused_;
  std::optional<sw::LinkTarget> target_;
  std::optional<sw::LinkSource> source_;
};

Json came_of(const std::function<Json()>& call) {
  try {
    return call();
  } catch (const c10::ValueError& error) {
    return {{"ValueError", error.what_without_backtrace()}};
  } catch (const c10::DistBackendError& error) {
    return {{"DistBackendError", error.what_without_backtrace()}};
  }
}

void run(const std::vector<std::string>& words) {
  Rank rank(sw::connect({.address = words[1],
                         .role = words[2],
                         .rank = std::stoll(words[3]),
                         .size = std::stoll(words[4]),
                         .secret = words[5],
                         .timeout = std::chrono::seconds(std::stoll(words[6]))}));
  const std::map<std::string, std::function<Json()>> calls = {
      {"subscribe", [&] { return rank.subscribe(); }},
      {"subscribe_wrongly", [&] { return rank.subscribe_wrongly(); }},
      {"subscribe_loads", [&] { return rank.subscribe_loads(); }},
      {"subscribe_loads_wrongly", [&] { return rank.subscribe_loads_wrongly(); }},
      {"receive", [&] { return rank.receive(); }},
      {"receive_loads", [&] { return rank.receive_loads(); }},
      {"fail", [&] { return rank.fail(); }},
      {"survive", [&] { return rank.survive(); }},
      {"publish", [&] { return rank.publish(); }},
      {"publish_load", [&] { return rank.publish_load(); }},
      {"send", [&] { return rank.send(); }},
      {"send_held", [&] { return rank.send_held(); }},
      {"send_others_held", [&] { return rank.send_others_held(); }},
      {"send_others", [&] { return rank.send_others(); }},
      {"send_wrongly", [&] { return rank.send_wrongly(); }},
      {"explain", [&] { return rank.explain(); }},
      {"close", [&] { return rank.close(); }},
      {"throw", [&]() -> Json { throw std::runtime_error("of the caller's own"); }},
  };
  for (std::string word; std::getline(std::cin, word);)
    std::cout << came_of(calls.at(word)) << '\n' << std::flush;
}

}  // namespace

int main(int count, char** words) {
  const Json ended = came_of([&]() -> Json {
    try {
      run({words, words + count});
    } catch (const std::runtime_error& error) {
      std::cout << Json{{"thrown", error.what()}} << '\n';
    }
    return nullptr;
  });
  if (!ended.is_null()) std::cout << ended << '\n';
  return ended.is_null() ? 0 : 1;
}
