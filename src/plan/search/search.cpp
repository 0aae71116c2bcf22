#include "plan/search/search.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "plan/search/last_steps.h"
#include "plan/search/numbering.h"

namespace shardway {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr size_t kMostOthers = 4;

// A* whose edges are priced when they are needed: an edge enters the queue at its lower bound first. A node
// is left once nothing cheaper can lead to it. Steps, bytes and text settle ties.
class Search {
 public:
  Search(SearchProblem& problem, std::optional<int64_t> max_bytes)
      : problem_(problem),
        max_bytes_(max_bytes),
        numbering_(problem),
        last_steps_(problem, numbering_),
        labels_(numbering_.size()),
        source_(numbering_.number_of(problem.source())),
        target_(numbering_.number_of(problem.target())) {
    places_.reserve(numbering_.size());
    for (size_t number = 0; number < numbering_.size(); ++number) places_.push_back(place_of(number));
  }

  SearchResult run() {
    labels_[source_] = {.cost = 0};
    if (source_ != target_) {
      leave(source_);
      try_detours();
    }
    while (!queue_.empty() && !is_beaten(queue_.top().bound, queue_.top().steps)) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (problem_.is_dear()) raise(places_[entry.after], Place::Bound::deep);
      if (entry.cost + places_[entry.after].bound > entry.bound) {
        put(entry);
      } else if (entry.before == kNone) {
        const Label& label = labels_[entry.after];
        if (label.steps == entry.steps && label.cost == entry.cost && !label.is_left) leave(entry.after);
      } else {
        price(entry);
      }
    }
    return result();
  }

 private:
  struct Label {
    Femtoseconds cost = kNever;
    int64_t steps = 0;
    int64_t bytes = 0;
    size_t before = kNone;
    bool is_all_reduce = false;
    bool is_left = false;
  };

  // An edge to be priced, or with no `before` a node to be left.
  struct Entry {
    Femtoseconds bound = 0;  // of a path to the target
    Femtoseconds cost = 0;   // of it, up to `after`
    int64_t steps = 0;
    size_t before = kNone;
    size_t after = 0;
    bool is_all_reduce = false;

    bool operator<(const Entry& other) const {  // of a queue whose top is the largest
      const auto key = [](const Entry& e) {
        return std::tuple(e.bound, e.steps, e.before == kNone, e.before, e.after);
      };
      return key(other) < key(*this);
    }
  };

  bool is_beaten(Femtoseconds bound, int64_t steps) const {
    const Label& best = labels_[target_];
    return std::tie(bound, steps) > std::tie(best.cost, best.steps);
  }

  // A node, and a lower bound on what lies between it and the target. Better bounds are computed when needed.
  struct Place {
    enum class Bound : uint8_t { least, rough, full, deep };

    Node node = {};
    bool exists = false;
    Bound kind = Bound::least;
    Femtoseconds bound = 0;
  };

  Place place_of(size_t number) const {
    Place place{.node = numbering_.node(number)};
    place.exists = numbering_.exists(place.node);
    if (number == target_) {
      place.kind = Place::Bound::deep;
    } else if (place.exists && !problem_.only_cuts(place.node, problem_.target())) {
      place.bound = problem_.least();
    }
    return place;
  }

  void raise(Place& place, Place::Bound kind) {
    if (place.kind >= kind) return;
    Femtoseconds bound = 0;
    if (kind == Place::Bound::rough) bound = problem_.rough_bound_of_path(place.node, problem_.target());
    if (kind == Place::Bound::full) bound = problem_.bound_of_path(place.node, problem_.target());
    if (kind == Place::Bound::deep) bound = last_steps_.bound_from(place.node);
    place.bound = std::max(place.bound, bound);
    place.kind = kind;
  }

  void leave(size_t number) {
    labels_[number].is_left = true;
    const Node before = numbering_.node(number);
    const Label label = labels_[number];
    price({.before = number, .after = target_});  // first: what it costs bounds all others
    for (size_t after = 0; after < numbering_.size(); ++after) {
      const Place& place = places_[after];
      if (!place.exists || is_beaten(label.cost + place.bound, label.steps + 1)) continue;
      if (!problem_.leads(before, place.node)) continue;
      if (SearchProblem::combines_in_place(before, place.node)) {
        enter_edge(label, number, after, problem_.bound_of_all_reduce(before, place.node), true);
      }
      if (after != target_ && is_worth_a_look(before, label, places_[after])) {
        enter_edge(label, number, after, problem_.bound_of(before, place.node), false);
      }
    }
  }

  // Asks the cheapest questions first.
  bool is_worth_a_look(const Node& before, const Label& label, Place& place) {
    const int64_t steps = label.steps + 2;
    Femtoseconds step = problem_.only_cuts(before, place.node) ? 0 : problem_.least();
    if (is_beaten(label.cost + step + place.bound, steps)) return false;
    raise(place, Place::Bound::rough);
    step = std::max(step, problem_.rough_bound_of(before, place.node));
    if (is_beaten(label.cost + step + place.bound, steps)) return false;
    raise(place, Place::Bound::full);
    return !is_beaten(label.cost + step + place.bound, steps);
  }

  // Prices the most promising paths of two steps at once: the best of them bounds the rest of the search.
  void try_detours() {
    constexpr size_t kDetours = 6;
    std::vector<Entry> first;
    for (size_t i = 0; i < kDetours && !queue_.empty(); ++i) {
      first.push_back(queue_.top());
      queue_.pop();
    }
    for (const Entry& entry : first) {
      price(entry);
      if (entry.after != target_ && labels_[entry.after].before == source_) {
        price({.before = entry.after, .after = target_});
      }
    }
  }

  void enter_edge(const Label& label, size_t before, size_t after, Femtoseconds bound, bool is_all_reduce) {
    const Femtoseconds here = label.cost + bound;
    if (here > labels_[after].cost) return;
    const int64_t steps = label.steps + (after == target_ ? 1 : 2);
    raise(places_[after], Place::Bound::full);
    put({.cost = here, .steps = steps, .before = before, .after = after, .is_all_reduce = is_all_reduce});
  }

  void put(Entry entry) {
    entry.bound = entry.cost + places_[entry.after].bound;
    const int64_t steps = entry.steps + (entry.before == kNone ? 1 : 0);
    if (!is_beaten(entry.bound, steps)) queue_.push(entry);
  }

  void price(const Entry& entry) {
    const Node before = numbering_.node(entry.before);
    const Node after = numbering_.node(entry.after);
    if (max_bytes_ && problem_.peak_bytes_of(before, after, entry.is_all_reduce) > *max_bytes_) return;
    ++priced_;
    const Price price = problem_.price_of(before, after, entry.is_all_reduce);
    const Label& from = labels_[entry.before];
    const Label label{.cost = from.cost + price.cost,
                      .steps = from.steps + 1,
                      .bytes = from.bytes + price.bytes,
                      .before = entry.before,
                      .is_all_reduce = entry.is_all_reduce};
    if (entry.after == target_) complete_.push_back(label);
    if (!is_better(label, entry.after)) return;
    labels_[entry.after] = label;
    if (entry.after == target_) return;
    put({.cost = label.cost, .steps = label.steps, .after = entry.after});
  }

  bool is_better(const Label& label, size_t number) const {
    const Label& old = labels_[number];
    const auto key = [](const Label& l) { return std::tie(l.cost, l.steps, l.bytes); };
    if (key(label) != key(old)) return key(label) < key(old);
    return texts_to(label, number) < texts_to(old, number);
  }

  std::vector<std::string> texts_to(const Label& last, size_t number) const {
    std::vector<std::string> texts{placements_text(problem_.layout_of(numbering_.node(number)))};
    for (const Label* label = &last; label->before != kNone; label = &labels_[label->before]) {
      texts.push_back(placements_text(problem_.layout_of(numbering_.node(label->before))));
    }
    std::reverse(texts.begin(), texts.end());
    return texts;
  }

  PricedPath path_to_target(const Label& last) const {
    PricedPath path{.cost = last.cost, .bytes = last.bytes};
    size_t after = target_;
    for (const Label* label = &last; label->before != kNone; label = &labels_[label->before]) {
      path.steps.push_back({.before = numbering_.node(label->before),
                            .after = numbering_.node(after),
                            .is_all_reduce = label->is_all_reduce});
      after = label->before;
    }
    std::reverse(path.steps.begin(), path.steps.end());
    return path;
  }

  PricedPath finished(PricedPath path) const {
    for (PathStep& step : path.steps) {
      step.price = problem_.price_of(step.before, step.after, step.is_all_reduce);
      step.peak_bytes = problem_.peak_bytes_of(step.before, step.after, step.is_all_reduce);
    }
    return path;
  }

  SearchResult result() {
    SearchResult result{.layouts = numbering_.size(), .priced = priced_};
    if (source_ == target_) {
      result.best = PricedPath{};
      return result;
    }
    const Label& best = labels_[target_];
    if (best.before == kNone) return result;
    result.best = finished(path_to_target(best));
    std::sort(complete_.begin(), complete_.end(), [](const Label& a, const Label& b) {
      return std::tie(a.cost, a.steps, a.bytes, a.before) < std::tie(b.cost, b.steps, b.bytes, b.before);
    });
    for (const Label& label : complete_) {
      if (result.others.size() == kMostOthers) break;
      if (label.before == best.before && label.is_all_reduce == best.is_all_reduce) continue;
      result.others.push_back(finished(path_to_target(label)));
    }
    return result;
  }

  SearchProblem& problem_;
  std::optional<int64_t> max_bytes_;
  Numbering numbering_;
  LastSteps last_steps_;
  std::vector<Label> labels_;
  std::vector<Place> places_;
  size_t source_;
  size_t target_;
  std::priority_queue<Entry> queue_;
  std::vector<Label> complete_;
  size_t priced_ = 0;
};

}  // namespace

SearchResult search(SearchProblem& problem, std::optional<int64_t> max_bytes) {
  return Search(problem, max_bytes).run();
}

}  // namespace shardway
