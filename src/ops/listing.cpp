#include "ops/listing.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <sstream>

#include "ops/arguments.h"

namespace shardway {
namespace {

constexpr int64_t kMagic = 0x31747369'6c776873;  // "shwlist1"

// Numbers one after the other, a list with its length in front of it.
class Writer {
 public:
  void number(int64_t value) { words_.push_back(value); }

  void list(const Sizes& values) {
    number(static_cast<int64_t>(values.size()));
    words_.insert(words_.end(), values.begin(), values.end());
  }

  // With what it takes in all as the second number.
  at::Tensor finish() {
    const auto bytes = static_cast<int64_t>(words_.size() * sizeof(int64_t));
    words_[1] = aligned(bytes);
    at::Tensor result = at::zeros({aligned(bytes)}, at::kByte);
    std::memcpy(result.mutable_data_ptr(), words_.data(), static_cast<size_t>(bytes));
    return result;
  }

 private:
  std::vector<int64_t> words_;
};

class Reader {
 public:
  Reader(const at::Tensor& bytes, int64_t rank)
      : words_(bytes.contiguous()), count_(bytes.numel() / int64_t{sizeof(int64_t)}), rank_(rank) {}

  int64_t number() {
    check(at_ < count_);
    int64_t value = 0;
    const auto* data = static_cast<const std::byte*>(words_.const_data_ptr());
    std::memcpy(&value, data + at_++ * int64_t{sizeof(int64_t)}, sizeof value);
    return value;
  }

  Sizes list() {
    const int64_t length = number();
    check(length >= 0 && length <= count_ - at_);
    Sizes values;
    for (int64_t i = 0; i < length; ++i) values.push_back(number());
    return values;
  }

  void check(bool is_right) const {
    TORCH_CHECK_VALUE(is_right, "rank ", rank_, " sent no list of tensors: it made another call");
  }

 private:
  at::Tensor words_;
  int64_t count_;
  int64_t at_ = 0;
  int64_t rank_;
};

Sizes characters_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string shape_text(const Listing& listing, const ListedTensor& tensor) {
  const bool may_differ = listing.collective == Collective::all_gather_v;
  std::ostringstream text;
  text << '(';
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    text << (d == 0 ? "" : ", ");
    if (may_differ && static_cast<int64_t>(d) == tensor.dim) {
      text << '*';
    } else {
      text << tensor.shape[d];
    }
  }
  text << ')';
  return text.str();
}

std::string list_text(const Sizes& sizes) {
  std::ostringstream text;
  for (size_t i = 0; i < sizes.size(); ++i) text << (i == 0 ? "(" : ", ") << sizes[i];
  return sizes.empty() ? "none" : text.str() + ")";
}

// A thing that all ranks must say alike.
struct Point {
  std::string name;
  std::string text;
};

std::vector<Point> points_of(const Listing& listing) {
  constexpr std::array kGrads = {"sum", "mean", "local"};
  std::vector<Point> points = {{"the number of tensors", std::to_string(listing.tensors.size())},
                               {"op", name_of(listing.op)},
                               {"grad", kGrads.at(static_cast<size_t>(listing.grad))}};
  for (size_t i = 0; i < listing.tensors.size(); ++i) {
    const ListedTensor& tensor = listing.tensors[i];
    const std::string of = c10::str(" of x[", i, "]");
    points.push_back({"dtype" + of, dtype_name(tensor.dtype)});
    points.push_back({"number of dims" + of, std::to_string(tensor.shape.size())});
    points.push_back({"dim" + of, std::to_string(tensor.dim)});
    points.push_back({"shape" + of, shape_text(listing, tensor)});
    points.push_back({"sizes" + of, list_text(tensor.sizes)});
  }
  return points;
}

// Whether the points have the same text, without making it.
bool are_alike(const Listing& a, const Listing& b) {
  if (a.tensors.size() != b.tensors.size() || a.op != b.op || a.grad != b.grad) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const ListedTensor& one = a.tensors[i];
    ListedTensor other = b.tensors[i];
    other.requires_grad = one.requires_grad;
    const bool may_differ =
        a.collective == Collective::all_gather_v && one.shape.size() == other.shape.size();
    if (may_differ) {
      const auto d = static_cast<size_t>(one.dim);
      other.shape[d] = one.shape[d];
    }
    if (!(one == other)) return false;
  }
  return true;
}

}  // namespace

Listing as_on(const Listing& own, int64_t rank) {
  Listing other = own;
  if (own.collective != Collective::all_gather_v) return other;  // every rank brings the whole
  for (ListedTensor& tensor : other.tensors)
    tensor.shape[static_cast<size_t>(tensor.dim)] = tensor.sizes[static_cast<size_t>(rank)];
  return other;
}

at::Tensor encoded(const Listing& listing) {
  Writer writer;
  writer.number(kMagic);
  writer.number(0);
  writer.number(static_cast<int64_t>(listing.collective));
  writer.number(static_cast<int64_t>(listing.op));
  writer.number(static_cast<int64_t>(listing.grad));
  writer.list(characters_of(listing.problem));
  writer.number(static_cast<int64_t>(listing.tensors.size()));
  for (const ListedTensor& tensor : listing.tensors) {
    writer.number(static_cast<int64_t>(tensor.dtype));
    writer.number(static_cast<int64_t>(tensor.requires_grad));
    writer.number(tensor.dim);
    writer.list(tensor.shape);
    writer.list(tensor.sizes);
  }
  return writer.finish();
}

Decoded decoded(const at::Tensor& bytes, int64_t rank) {
  constexpr int64_t kStart = 2 * sizeof(int64_t);
  Reader start(bytes.narrow(0, 0, std::min(bytes.numel(), kStart)).cpu(), rank);
  start.check(start.number() == kMagic);
  Decoded result{.listing = {}, .bytes = start.number()};
  start.check(result.bytes >= kStart && result.bytes <= bytes.numel());

  Reader reader(bytes.narrow(0, kStart, result.bytes - kStart).cpu(), rank);
  Listing& listing = result.listing;
  listing.collective = static_cast<Collective>(reader.number());
  listing.op = static_cast<Op>(reader.number());
  listing.grad = static_cast<Grad>(reader.number());
  for (const int64_t character : reader.list()) listing.problem += static_cast<char>(character);
  const int64_t count = reader.number();
  for (int64_t i = 0; i < count; ++i) {
    ListedTensor& tensor = listing.tensors.emplace_back();
    tensor.dtype = static_cast<at::ScalarType>(reader.number());
    tensor.requires_grad = reader.number() != 0;
    tensor.dim = reader.number();
    tensor.shape = reader.list();
    tensor.sizes = reader.list();
  }
  return result;
}

void compare(const std::vector<Listing>& listings) {
  for (size_t rank = 0; rank < listings.size(); ++rank) {
    const Listing& listing = listings[rank];
    if (!listing.problem.empty())
      raise(name_of(listing.collective), listing.problem, static_cast<int64_t>(rank));
  }
  for (size_t rank = 1; rank < listings.size(); ++rank) {
    if (are_alike(listings[0], listings[rank])) continue;
    const std::vector<Point> first = points_of(listings[0]);
    const std::vector<Point> other = points_of(listings[rank]);
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      TORCH_CHECK_VALUE(first[i].text == other[i].text, name_of(listings[0].collective),
                        ": ranks disagree on ", first[i].name, ": ", first[i].text, " on rank 0, ",
                        other[i].text, " on rank ", rank);
    }
  }
}

}  // namespace shardway
