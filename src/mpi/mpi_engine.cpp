// MPI as a MessageEngine. This file is installed as a source, and compiled with the MPI of each program that
// links the component: it includes public headers only.
#include "shardway/mpi_engine.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// MPI counts in int. Longer messages are cut, alike on both ranks.
#ifndef SHARDWAY_MPI_MOST_BYTES
#define SHARDWAY_MPI_MOST_BYTES (1 << 30)
#endif

namespace shardway {
namespace {

constexpr size_t kMostBytes = SHARDWAY_MPI_MOST_BYTES;

// How long a message that was dropped is asked whether it has ended.
constexpr auto kTimeToCancel = std::chrono::milliseconds(200);

void check(int code) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<size_t>(length));
  throw std::runtime_error("MPI: " + text);
}

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("join: " + why); }

// Errors of calls that belong to no communicator of ours go to the one of MPI_COMM_WORLD, which ends the
// program by default. While this object lives they are returned.
class ReturnedErrors {
 public:
  ReturnedErrors() {
    for (size_t i = 0; i < kCommunicators; ++i) {
      MPI_Comm_get_errhandler(communicator(i), &before_[i]);
      MPI_Comm_set_errhandler(communicator(i), MPI_ERRORS_RETURN);
    }
  }
  ~ReturnedErrors() {
    for (size_t i = 0; i < kCommunicators; ++i) {
      MPI_Comm_set_errhandler(communicator(i), before_[i]);
      MPI_Errhandler_free(&before_[i]);
    }
  }
  ReturnedErrors(const ReturnedErrors&) = delete;
  ReturnedErrors& operator=(const ReturnedErrors&) = delete;

 private:
  static constexpr size_t kCommunicators = 2;
  static MPI_Comm communicator(size_t i) { return i == 0 ? MPI_COMM_WORLD : MPI_COMM_SELF; }

  MPI_Errhandler before_[kCommunicators] = {};
};

// A duplicate of a user's communicator. It is freed when its engine goes, and in MPI_Finalize at the latest.
struct Duplicate {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::atomic<bool> is_open = true;
};

// The duplicates that are not freed yet, in the order in which they were made.
class Duplicates {
 public:
  static Duplicates& instance() {
    static auto* duplicates = new Duplicates;  // never destroyed: engines may outlive the end of main
    return *duplicates;
  }

  void add(std::shared_ptr<Duplicate> duplicate) {
    const std::lock_guard lock(mutex_);
    if (!is_watching_) watch_finalize();
    is_watching_ = true;
    open_.push_back(std::move(duplicate));
  }

  void free(const std::shared_ptr<Duplicate>& duplicate) {
    const std::lock_guard lock(mutex_);
    if (std::erase(open_, duplicate) > 0) close(*duplicate);
  }

 private:
  // MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF, while all of MPI can still be used.
  static void watch_finalize() {
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Duplicates::at_finalize, &key, nullptr));
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr));
    check(MPI_Comm_free_keyval(&key));
  }

  static int at_finalize(MPI_Comm /*self*/, int /*key*/, void* /*value*/, void* /*state*/) {
    Duplicates& all = instance();
    const std::lock_guard lock(all.mutex_);
    for (const auto& duplicate : all.open_) close(*duplicate);
    all.open_.clear();
    return MPI_SUCCESS;
  }

  static void close(Duplicate& duplicate) {
    duplicate.is_open = false;
    MPI_Comm_free(&duplicate.communicator);
  }

  std::mutex mutex_;
  bool is_watching_ = false;
  std::vector<std::shared_ptr<Duplicate>> open_;
};

// Who may call MPI, by the level that MPI_Init_thread gave.
class Callers {
 public:
  Callers() {
    check(MPI_Query_thread(&level_));
    int is_main = 0;
    check(MPI_Is_thread_main(&is_main));
    if (level_ <= MPI_THREAD_FUNNELED && is_main == 0)
      refuse(
          "MPI was initialised for its main thread alone, and this is another: ask MPI_Init_thread for "
          "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  }

  bool may_be_any() const { return level_ == MPI_THREAD_MULTIPLE; }

  // Whether the current thread may call on behalf of `poster`, the thread that posted a message.
  bool may_be_this(std::thread::id poster) const {
    return may_be_any() || poster == std::this_thread::get_id();
  }

  void check_this() const {
    if (level_ > MPI_THREAD_FUNNELED || std::this_thread::get_id() == main_) return;
    throw std::runtime_error(
        "MPI was initialised for its main thread alone, and another thread makes a call: ask MPI_Init_thread "
        "for MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  }

 private:
  int level_ = MPI_THREAD_SINGLE;
  std::thread::id main_ = std::this_thread::get_id();  // meant only up to MPI_THREAD_FUNNELED
};

// What messages of one engine share.
struct Line {
  std::shared_ptr<Duplicate> duplicate;
  Callers callers;

  void check_open() const {
    if (!duplicate->is_open) throw std::runtime_error("MPI_Finalize was called, which ends the group");
    callers.check_this();
  }
};

// Never frees what it is given: MPI may still write there.
void keep_for_ever(std::vector<MPI_Request> requests, MessageEngine::Keeper keeper) {
  struct Kept {
    std::vector<MPI_Request> requests;
    MessageEngine::Keeper keeper;
  };
  static std::mutex mutex;
  static auto* kept = new std::vector<Kept>;
  const std::lock_guard lock(mutex);
  kept->push_back({std::move(requests), std::move(keeper)});
}

class MpiMessage : public EngineMessage {
 public:
  enum class Way : uint8_t { out, in };

  MpiMessage(std::shared_ptr<const Line> line, Way way, MessageEngine::Keeper keeper)
      : line_(std::move(line)), way_(way), keeper_(std::move(keeper)) {}

  ~MpiMessage() override {
    if (requests_.empty() || !line_->duplicate->is_open) return;
    if (!line_->callers.may_be_this(poster_) || !is_cancelled())
      keep_for_ever(std::move(requests_), std::move(keeper_));
  }
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;

  void add(MPI_Request request) { requests_.push_back(request); }

  bool is_done() override {
    line_->check_open();
    for (; !requests_.empty(); requests_.erase(requests_.begin())) {
      int is_done = 0;
      MPI_Status status;
      check(MPI_Test(&requests_.front(), &is_done, &status));
      if (is_done == 0) return false;
      int count = 0;
      if (way_ == Way::in) check(MPI_Get_count(&status, MPI_BYTE, &count));
      bytes_ += count;
    }
    keeper_.reset();
    return true;
  }

  int64_t bytes() const override { return bytes_; }

 private:
  bool is_cancelled() {
    if (way_ == Way::in) {
      for (MPI_Request& request : requests_) MPI_Cancel(&request);
    }
    const auto end = std::chrono::steady_clock::now() + kTimeToCancel;
    int are_done = 0;
    while (are_done == 0 && std::chrono::steady_clock::now() < end) {
      if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &are_done, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        return false;
    }
    return are_done != 0;
  }

  std::shared_ptr<const Line> line_;
  Way way_;
  MessageEngine::Keeper keeper_;
  std::thread::id poster_ = std::this_thread::get_id();
  std::vector<MPI_Request> requests_;  // in the order of the pieces
  int64_t bytes_ = 0;
};

// Waits for a request that needs all ranks.
void await(MPI_Request& request, std::chrono::milliseconds timeout, const char* what) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (int is_done = 0;;) {
    check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
    if (is_done != 0) return;
    if (std::chrono::steady_clock::now() > end)
      throw std::runtime_error(std::string("join: not all ranks came to ") + what + " within " +
                               std::to_string(timeout.count()) + " ms");
    std::this_thread::yield();
  }
}

class MpiEngine : public MessageEngine {
 public:
  MpiEngine(std::shared_ptr<Line> line, std::chrono::milliseconds timeout)
      : line_(std::move(line)), timeout_(timeout) {
    check(MPI_Comm_rank(communicator(), &rank_));
    check(MPI_Comm_size(communicator(), &size_));
    int* most = nullptr;
    int is_set = 0;
    check(MPI_Comm_get_attr(communicator(), MPI_TAG_UB, static_cast<void*>(&most), &is_set));
    if (is_set != 0) most_tag_ = *most;
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    check(MPI_Get_library_version(text.data(), &length));
    name_ = text.substr(0, std::min(text.find_first_of(",\n"), static_cast<size_t>(length)));
  }

  ~MpiEngine() override {
    if (line_->callers.may_be_this(maker_)) Duplicates::instance().free(line_->duplicate);
  }
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  std::string name() const override { return name_; }
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  bool serves_threads() const override { return line_->callers.may_be_any(); }
  int64_t tags() const override { return most_tag_; }

  std::vector<std::byte> exchange(std::span<const std::byte> mine) override {
    line_->check_open();
    std::vector<std::byte> all(mine.size() * static_cast<size_t>(size_));
    const auto bytes = static_cast<int>(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check(
        MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, communicator(), &request));
    await(request, timeout_, "the exchange");
    return all;
  }

  std::unique_ptr<EngineMessage> send(std::span<const std::byte> bytes, int64_t to, int64_t tag,
                                      Keeper keeper) override {
    return in_pieces(MpiMessage::Way::out, bytes.size(), std::move(keeper),
                     [&](size_t begin, int count, MPI_Request* request) {
                       return MPI_Isend(bytes.data() + begin, count, MPI_BYTE, static_cast<int>(to),
                                        static_cast<int>(tag), communicator(), request);
                     });
  }

  std::unique_ptr<EngineMessage> receive(std::span<std::byte> room, int64_t from, int64_t tag,
                                         Keeper keeper) override {
    return in_pieces(MpiMessage::Way::in, room.size(), std::move(keeper),
                     [&](size_t begin, int count, MPI_Request* request) {
                       return MPI_Irecv(room.data() + begin, count, MPI_BYTE, static_cast<int>(from),
                                        static_cast<int>(tag), communicator(), request);
                     });
  }

  std::optional<Letter> take(int64_t tag) override {
    line_->check_open();
    int has_come = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, static_cast<int>(tag), communicator(), &has_come, &message, &status));
    if (has_come == 0) return std::nullopt;
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count));
    Letter letter{.from = status.MPI_SOURCE, .bytes = std::vector<std::byte>(static_cast<size_t>(count))};
    check(MPI_Mrecv(letter.bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    return letter;
  }

 private:
  MPI_Comm communicator() const { return line_->duplicate->communicator; }

  // A message without bytes is one piece too.
  template <class Post>
  std::unique_ptr<EngineMessage> in_pieces(MpiMessage::Way way, size_t bytes, Keeper keeper, Post&& post) {
    line_->check_open();
    auto message = std::make_unique<MpiMessage>(line_, way, std::move(keeper));
    size_t begin = 0;
    do {
      const size_t count = std::min(bytes - begin, kMostBytes);
      MPI_Request request = MPI_REQUEST_NULL;
      check(post(begin, static_cast<int>(count), &request));
      message->add(request);
      begin += count;
    } while (begin < bytes);
    return message;
  }

  std::shared_ptr<const Line> line_;
  std::chrono::milliseconds timeout_;
  std::thread::id maker_ = std::this_thread::get_id();
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  int most_tag_ = 32767;  // what every MPI has
};

void check_running() {
  int is_initialised = 0;
  int is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  if (is_finalised != 0) refuse("MPI_Finalize was called before");
  if (is_initialised == 0)
    refuse("MPI is not initialised: the program calls MPI_Init or MPI_Init_thread first");
}

std::shared_ptr<Duplicate> duplicate_of(MPI_Comm communicator, std::chrono::milliseconds timeout) {
  const ReturnedErrors guard;
  if (communicator == MPI_COMM_NULL) refuse("the communicator is MPI_COMM_NULL, as after MPI_Comm_free");
  int spans_two = 0;
  if (MPI_Comm_test_inter(communicator, &spans_two) != MPI_SUCCESS)
    refuse("the communicator is none of this MPI, or was freed");
  if (spans_two != 0) refuse("the communicator spans two groups: give one of a single group");
  auto duplicate = std::make_shared<Duplicate>();
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(communicator, &duplicate->communicator, &request));
  await(request, timeout, "the communicator");
  check(MPI_Comm_set_errhandler(duplicate->communicator, MPI_ERRORS_RETURN));
  Duplicates::instance().add(duplicate);
  return duplicate;
}

[[maybe_unused]] const bool kIsUsedUnderMpirun = [] {
  use_under_mpirun([](std::chrono::milliseconds timeout) { return mpi_engine(MPI_COMM_WORLD)(timeout); });
  return true;
}();

}  // namespace

EngineMaker mpi_engine(MPI_Comm communicator) {
  return [communicator](std::chrono::milliseconds timeout) -> std::shared_ptr<MessageEngine> {
    check_running();
    const Callers callers;
    auto line =
        std::make_shared<Line>(Line{.duplicate = duplicate_of(communicator, timeout), .callers = callers});
    return std::make_shared<MpiEngine>(std::move(line), timeout);
  };
}

}  // namespace shardway
