// How a call of the backend comes to its end.
#pragma once

#include <exception>
#include <utility>

#include "backend/work.h"

namespace shardway::backend {

// Completes the work of a call with what becomes of it. If `is_now`, runs the call here and throws what it
// throws. Otherwise gives `post` a function to run later, whose errors the work tells.
template <class Run, class Post>
void run_or_post(const c10::intrusive_ptr<CallWork>& work, bool is_now, Run run, Post&& post) {
  if (is_now) {
    run();
    work->complete_at_once();
    return;
  }
  post([run = std::move(run), work] {
    try {
      run();
      work->complete(nullptr);
    } catch (...) {
      work->complete(std::current_exception());
    }
  });
}

}  // namespace shardway::backend
