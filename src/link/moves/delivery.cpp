#include "link/moves/delivery.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <typeinfo>

namespace shardway::link {
namespace {

constexpr size_t kLongestReason = 1000;
// Another rank may have waited for the whole timeout before it reports.
constexpr std::chrono::seconds kReportsLimit{10};
// For the hub's word on a wait that has taken the whole timeout.
constexpr std::chrono::milliseconds kLeastAnswer{500};

// Its type and its text, as Python shows an exception.
std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return c10::demangle(typeid(error).name()) + ": " + told(error);
  }
}

}  // namespace

int64_t Delivery::run(LinkedJob& job) const {
  const Instant started = Instant::clock::now();
  std::string failed;
  if (const auto joint = job.quick_group(call)) {
    failed = failure_without_hub(job, *joint);
    if (failed.empty() && joint->is_quick()) return job.note_version(job.version() + 1);
  }
  const Instant last = std::max(started + job.timeout(), Instant::clock::now() + kLeastAnswer);
  const Json question = {
      {"do", call}, {"problems", problems}, {"version", job.version()}, {"failed", failed}};
  const Json go = job.ask(call, question, failed.empty() ? job.deadline() : last);
  run_by_hub(job, go);
  return job.note_version(integer_in(go, "version"));
}

// Returns the generation of a group that has failed: somebody was lost or is late, and the hub knows whom.
std::string Delivery::failure_without_hub(LinkedJob& job, JointGroup& joint) const {
  const bool is_willing = problems.empty() && !job.has_news();
  try {
    joint.try_version(job.version() + 1, parts, sets, is_willing, on_begin);
    return {};
  } catch (const std::exception&) {  // the hub says why
    job.leave_joint_group();
    return joint.generation();
  }
}

void Delivery::run_by_hub(LinkedJob& job, const Json& go) const {
  on_begin(integer_in(go, "version"));
  Loader no_loads({});
  std::shared_ptr<JointGroup> joint;
  try {
    joint = job.joint_group(go);
    joint->move(parts, *destinations, loader ? *loader : no_loads, sets);
  } catch (const std::exception& error) {
    job.leave_joint_group();
    const std::string reason = told(error).substr(0, kLongestReason);
    job.ask(call, {{"do", "failed"}, {"why", reason}}, job.deadline() + kReportsLimit);
    throw;
  }
  if (loader && loader->failure()) {
    report_load(job);
    std::rethrow_exception(loader->failure());
  }
  const Json answer = job.ask(call, {{"do", "done"}}, job.deadline() + kReportsLimit);
  if (truth_or(answer, "everywhere", false)) joint->settle();
}

// The version has come, but a function did not take it: the others are told, and this rank throws what the
// function threw.
void Delivery::report_load(LinkedJob& job) const {
  const std::string reason =
      "the Load of " + loader->failed_name() + " raised " + words_of(loader->failure());
  try {
    job.ask(call, {{"do", "failed"}, {"why", reason.substr(0, kLongestReason)}},
            job.deadline() + kReportsLimit);
  } catch (const c10::DistBackendError&) {  // which says the same to the others
  }
}

}  // namespace shardway::link
