#include "shardway/page.h"

#include "page/markup.h"
#include "page/parts.h"
#include "page/scene.h"
#include "page/words.h"

namespace shardway {
namespace {

// JSON without "</script>", which would end the element that holds it.
std::string in_script(const page::SceneJson& json) {
  std::string result;
  for (const char letter : json.dump(-1, ' ', false, page::SceneJson::error_handler_t::replace)) {
    result += letter == '<' ? "\\u003c" : std::string(1, letter);
  }
  return result;
}

// The skeleton with every {{name}} filled in.
std::string filled(std::string text, const std::string& name, const std::string& part) {
  const std::string mark = "{{" + name + "}}";
  const size_t at = text.find(mark);
  return text.replace(at, mark.size(), part);
}

}  // namespace

std::string to_html(const Plan& plan, const PageOptions& options) {
  std::string text = page::kSkeleton;
  text = filled(std::move(text), "title",
                page::escaped(page::words_of(plan.from) + " → " + page::words_of(plan.to)));
  text = filled(std::move(text), "style", page::kStyle);
  text = filled(std::move(text), "explanation", page::escaped(explain(plan)));
  text = filled(std::move(text), "scene", in_script(page::scene_of(plan, options)));
  return filled(std::move(text), "script", page::kScript);
}

}  // namespace shardway
