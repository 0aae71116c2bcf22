#include "terms/listing.h"

#include <algorithm>
#include <cstring>

namespace shardway::wire {
namespace {

constexpr int64_t kMagic = 0x31747369'6c776873;  // "shwlist1"
constexpr int64_t kWord = sizeof(int64_t);
constexpr int64_t kLeastTensorWords = 5;

// Numbers one after the other, a list with its length in front of it.
class Writer {
 public:
  void number(int64_t value) { words_.push_back(value); }

  void list(const std::vector<int64_t>& values) {
    number(static_cast<int64_t>(values.size()));
    words_.insert(words_.end(), values.begin(), values.end());
  }

  // With what it takes in all as the second number.
  std::vector<std::byte> finish() {
    const auto bytes = static_cast<int64_t>(words_.size()) * kWord;
    words_[1] = aligned(bytes);
    std::vector<std::byte> result(static_cast<size_t>(aligned(bytes)));
    std::memcpy(result.data(), words_.data(), static_cast<size_t>(bytes));
    return result;
  }

 private:
  std::vector<int64_t> words_;
};

void require(bool holds, const char* why) {
  if (!holds) throw NoListing(why);
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes)
      : data_(bytes.data()), left_(static_cast<int64_t>(bytes.size()) / kWord) {}

  int64_t left() const { return left_; }

  int64_t number() {
    require(left_ > 0, "it ends too soon");
    int64_t value = 0;
    std::memcpy(&value, data_, sizeof(value));
    data_ += kWord;
    --left_;
    return value;
  }

  // One of as many.
  int64_t choice(int64_t count, const char* why) {
    const int64_t value = number();
    require(value >= 0 && value < count, why);
    return value;
  }

  std::vector<int64_t> list() {
    const int64_t length = number();
    require(length >= 0 && length <= left_, "a list in it is longer than it is");
    std::vector<int64_t> values(static_cast<size_t>(length));
    std::generate(values.begin(), values.end(), [this] { return number(); });
    return values;
  }

 private:
  const std::byte* data_;
  int64_t left_;
};

TensorRecord read_tensor(Reader& reader, Collective collective, int64_t ranks, const Kinds& kinds) {
  TensorRecord tensor;
  tensor.dtype = reader.number();
  const int64_t element_bytes = kinds.bytes_of_dtype(tensor.dtype);
  require(element_bytes > 0, "there is no such dtype");
  tensor.requires_grad = reader.choice(2, "it says neither yes nor no") != 0;
  tensor.dim = reader.choice(kMaxDims, "a tensor has no such dim");
  tensor.shape = reader.list();
  tensor.sizes = reader.list();
  const auto ndim = static_cast<int64_t>(tensor.shape.size());
  require(ndim <= kMaxDims && tensor.dim < ndim, "a tensor has no such dim");
  require(dense_bytes(tensor.shape.data(), ndim, element_bytes) >= 0, "a tensor cannot have such a shape");
  const bool has_sizes = !tensor.sizes.empty();
  require(!has_sizes || static_cast<int64_t>(tensor.sizes.size()) == ranks, "it has not one size per rank");
  const int64_t total = has_sizes ? total_of(tensor.sizes.data(), ranks) : 0;
  require(total >= 0, "its sizes cannot be");
  const bool is_split = collective == Collective::reduce_scatter_v;
  require(!is_split || (has_sizes && total == tensor.shape[static_cast<size_t>(tensor.dim)]),
          "its sizes are not those of its tensors");
  return tensor;
}

}  // namespace

std::vector<std::byte> written(const ListRecord& listing) {
  Writer writer;
  writer.number(kMagic);
  writer.number(0);
  writer.number(static_cast<int64_t>(listing.collective));
  writer.number(listing.op);
  writer.number(listing.grad);
  writer.list({listing.problem.begin(), listing.problem.end()});
  const bool counts = listing.problem.empty();
  writer.number(counts ? static_cast<int64_t>(listing.tensors.size()) : 0);
  for (const TensorRecord& tensor : listing.tensors) {
    if (!counts) break;
    writer.number(tensor.dtype);
    writer.number(tensor.requires_grad ? 1 : 0);
    writer.number(tensor.dim);
    writer.list(tensor.shape);
    writer.list(tensor.sizes);
  }
  return writer.finish();
}

int64_t listing_bytes(std::span<const std::byte> start, int64_t bytes) {
  Reader reader(start);
  require(reader.number() == kMagic, "it made another call");
  const int64_t taken = reader.number();
  require(taken >= kListingStart && taken <= bytes && taken % kListAlignment == 0,
          "it is longer than what came");
  return taken;
}

ListRecord read_listing(std::span<const std::byte> bytes, int64_t ranks, const Kinds& kinds) {
  const auto given = static_cast<int64_t>(bytes.size());
  require(listing_bytes(bytes, given) == given, "it is shorter than what came");
  Reader reader(bytes.subspan(kListingStart));
  ListRecord listing;
  listing.collective = static_cast<Collective>(reader.choice(kCollectives, "there is no such collective"));
  const bool is_known =
      listing.collective == Collective::all_gather_v || listing.collective == Collective::reduce_scatter_v;
  require(is_known, "there is no such collective of lists");
  listing.op = reader.choice(kOps, "there is no such op");
  listing.grad = reader.choice(kGrads, "there is no such gradient");
  for (const int64_t character : reader.list()) listing.problem += static_cast<char>(character);
  const int64_t count = reader.number();
  require(count >= 0 && count <= reader.left() / kLeastTensorWords, "it has fewer tensors than it says");
  for (int64_t i = 0; i < count; ++i)
    listing.tensors.push_back(read_tensor(reader, listing.collective, ranks, kinds));
  return listing;
}

}  // namespace shardway::wire
