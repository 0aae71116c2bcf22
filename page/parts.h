// The files page.html, page.css and page.js, compiled in.
#pragma once

namespace shardway::page {

extern const char* const kSkeleton;
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace shardway::page
