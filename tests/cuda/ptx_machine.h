// Runs PTX text on this host, one thread after another: an independent reading of what the kernels say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardway::test {

// Understands the instructions that the kernels have, and throws std::runtime_error for any other, for a
// register that is not declared and for a label that is not there.
class PtxMachine {
 public:
  explicit PtxMachine(const std::string& text);

  struct Grid {
    uint32_t blocks = 1;
    uint32_t rows = 1;
    uint32_t threads = 1;
  };

  // Runs every thread of the grid on this parameter. Addresses are those of this process.
  void run(const Grid& grid, std::span<const std::byte> parameter);

 private:
  struct Instruction {
    std::string guard;  // a predicate; empty: always
    std::vector<std::string> name;
    std::vector<std::string> operands;
    std::string line;
  };

  void parse(std::string line);
  void run_thread(std::span<const std::byte> parameter);
  void step(const Instruction& instruction, std::span<const std::byte> parameter);
  void move(const Instruction& in);
  void load(const Instruction& in, std::span<const std::byte> parameter);
  void store(const Instruction& in);
  void convert(const Instruction& in);
  void compare(const Instruction& in);
  void compute(const Instruction& in);

  uint64_t value(const std::string& operand) const;
  uint64_t address(const std::string& operand) const;
  void set(const std::string& name, uint64_t bits);

  std::vector<Instruction> instructions_;
  std::map<std::string, size_t> labels_;
  std::map<std::string, uint64_t> registers_;
  std::map<std::string, int> widths_;
  std::map<std::string, uint64_t> places_;  // %ctaid.x and its like
};

}  // namespace shardway::test
