#include "shardway/page.h"

#include <cctype>

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

// An SVG in a place of its own: its style does not reach the page.
std::string as_object(const std::string& svg) {
  std::string address = "data:image/svg+xml;charset=utf-8,";
  for (const char letter : svg) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) {
      address += letter;
      continue;
    }
    constexpr const char* kDigits = "0123456789ABCDEF";
    address.append("%").append(1, kDigits[byte / 16]).append(1, kDigits[byte % 16]);
  }
  return "<object type=\"image/svg+xml\" data=\"" + address + "\"></object>";
}

std::string measured_section(const std::string& svg) {
  if (svg.empty()) return {};
  return "  <section id=\"measured\">\n"
         "    <div class=\"heading\"><h2>What the prices were measured by</h2>"
         "<p>calls, the prices fitted to them, and the error of each kind</p></div>\n    " +
         as_object(svg) + "\n  </section>\n";
}

}  // namespace

std::string to_html(const Plan& plan, const PageOptions& options) {
  std::string text = page::kSkeleton;
  text = filled(std::move(text), "title",
                page::escaped(page::words_of(plan.from) + " → " + page::words_of(plan.to)));
  text = filled(std::move(text), "style", page::kStyle);
  text = filled(std::move(text), "measured", measured_section(options.measured_svg));
  text = filled(std::move(text), "explanation", page::escaped(explain(plan)));
  text = filled(std::move(text), "scene", in_script(page::scene_of(plan, options)));
  return filled(std::move(text), "script", page::kScript);
}

}  // namespace shardway
