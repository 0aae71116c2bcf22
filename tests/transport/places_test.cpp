#include "transport/ipc/places.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace shardway {
namespace {

// Rank 1 of two that exchange blocks of a 4 x 3 tensor: rows [0,1) for rank 0, [1,4) for itself.
Route all_to_all() { return all_to_all_route({4, 3}, 0, {.send = {1, 3}, .recv = {2, 3}}, 1); }

InputPlace told_place() {
  InputPlace place = place_of(all_to_all(), at::zeros({3, 4}).t());
  place.freed = 7;
  place.allocation = {.number = 9, .bytes = 1000};
  place.offset = 40;
  return place;
}

// As ranks that agree tell it: each sends and takes two elements of every rank.
std::vector<InputPlaces> agreeing(int64_t ranks) {
  InputPlace place;
  place.pushed.assign(static_cast<size_t>(ranks), 2);
  place.pulled = place.pushed;
  return std::vector<InputPlaces>(static_cast<size_t>(ranks), {place, place});
}

TEST(InputPlaces, ArriveAsTheyWereTold) {
  const InputPlace told = told_place();
  EXPECT_EQ(told.strides, (std::vector<int64_t>{4, 16}));  // in bytes
  EXPECT_EQ(told.pushed, (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(told.pulled, (std::vector<int64_t>{6, 9}));
  const InputPlaces all = read_places(written({InputPlace(agreeing(2)[0][0]), told}), 2, 1);
  ASSERT_EQ(all.size(), 2);
  const InputPlace& heard = all[1];
  EXPECT_EQ(heard.freed, 7);
  EXPECT_EQ(heard.allocation.number, 9);
  EXPECT_EQ(heard.allocation.bytes, 1000);
  EXPECT_EQ(heard.offset, 40);
  EXPECT_EQ(heard.element_bytes, 4);
  EXPECT_EQ(heard.shape, told.shape);
  EXPECT_EQ(heard.strides, told.strides);
  EXPECT_EQ(heard.pushed, told.pushed);
  EXPECT_EQ(heard.pulled, told.pulled);
  ASSERT_EQ(heard.pushes.size(), 2);
  EXPECT_EQ(heard.pushes[1].peer, 1);
  EXPECT_EQ(heard.pushes[1].offset, (std::vector<int64_t>{1, 0}));
}

TEST(InputPlaces, ANoteThatIsCutAnywhereIsRefused) {
  const std::vector<std::byte> note = written({told_place(), told_place()});
  for (size_t bytes = 0; bytes < note.size(); ++bytes)
    EXPECT_THROW(read_places(std::span(note).first(bytes), 2, 1), c10::DistBackendError) << bytes;
  EXPECT_THROW(read_places(note, 3, 1), c10::DistBackendError) << "of a group of another size";
}

TEST(InputPlaces, DisagreementsNameTheRanks) {
  EXPECT_EQ(disagreement_of(agreeing(3)), "");
  auto places = agreeing(3);
  places[2][1].problem = "the tensor's memory cannot be shared";
  EXPECT_EQ(disagreement_of(places), "the tensor's memory cannot be shared (rank 2)");
  places = agreeing(3);
  places[1][1].gpu.bytes[0] = 1;
  EXPECT_NE(disagreement_of(places).find("the ranks do not share a GPU: rank 0"), std::string::npos);
  places = agreeing(3);
  places[1][1].dtype = 6;
  EXPECT_NE(disagreement_of(places).find("the ranks disagree on the dtype"), std::string::npos);
  places = agreeing(3);
  places[0][1].pulled[2] = 5;
  EXPECT_EQ(disagreement_of(places),
            "the ranks disagree on the sizes: rank 2 sends 2 elements to rank 0, which expects 5");
  places = agreeing(3);
  places[2].pop_back();
  EXPECT_EQ(disagreement_of(places), "the ranks disagree on the tensors: rank 0 moves 2, rank 2 moves 1");
}

TEST(InputPlaces, ABoxIsFoundInThePeersAllocation) {
  const InputPlace peer = told_place();
  const Move known{.peer = 1, .mine = {{0, 0}, {2, 3}}, .theirs = {{1, 0}, {2, 3}}};
  EXPECT_EQ(offset_of(known, peer, 0, 0), 40 + 4);
  // Where the peer alone knows it: its only push to rank 1 begins in row 1, to rank 0 in row 0.
  const Move unknown{.peer = 1, .mine = {{0, 0}, {1, 3}}, .theirs = {{kUnknownOffset, 0}, {1, 3}}};
  EXPECT_EQ(offset_of(unknown, peer, 1, 0), 40 + 4);
  EXPECT_EQ(offset_of(unknown, peer, 0, 0), 40);
  EXPECT_THROW(offset_of(unknown, peer, 0, 1), c10::DistBackendError) << "a second push, which was not told";
}

TEST(InputPlaces, ABoxOutsideOfWhatIsThereIsRefused) {
  const Move pull{.peer = 1, .mine = {{0, 0}, {2, 3}}, .theirs = {{1, 0}, {2, 3}}};
  const auto is_refused = [&](const InputPlace& peer) {
    try {
      offset_of(pull, peer, 0, 0);
      return false;
    } catch (const c10::DistBackendError&) {
      return true;
    }
  };
  EXPECT_FALSE(is_refused(told_place()));
  InputPlace peer = told_place();
  peer.shape[0] = 2;
  EXPECT_TRUE(is_refused(peer));
  peer = told_place();
  peer.shape.pop_back();
  EXPECT_TRUE(is_refused(peer));
  peer = told_place();
  peer.allocation.bytes = 40 + 40;
  EXPECT_TRUE(is_refused(peer));
  peer = told_place();
  peer.offset = -8;
  EXPECT_TRUE(is_refused(peer));
  peer = told_place();
  peer.strides[1] = int64_t{1} << 62;
  EXPECT_TRUE(is_refused(peer));
}

}  // namespace
}  // namespace shardway
