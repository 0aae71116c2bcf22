// Pieces of pictures: the frame, texts and lines, and scales of equal factors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardway::cli::svg {

inline constexpr double kWidth = 860;
inline constexpr double kLeft = 76;
inline constexpr double kRight = 40;
inline constexpr double kTop = 56;
inline constexpr double kHeight = 300;  // between the axes
inline constexpr double kLine = 20;     // of text

// A whole picture of this height. It follows the reader's light or dark colours.
std::string picture(double height, const std::string& content);

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* kind = "soft");
std::string line_between(double x, double y, double to_x, double to_y);

// A square of the colour, and a text beside it.
std::string legend_line(double y, size_t number, const std::string& text);

// Colours that are told apart by most people who see few of them, on white and on black.
const char* colour_of(size_t number);

// Lengths or bytes from left to right, microseconds upwards.
class LogScales {
 public:
  // All are above 0. The times are widened to powers of ten.
  LogScales(double first, double last, double least_us, double most_us);

  double x(double value) const;
  double y(double us) const;
  std::string times_axis() const;
  std::string bytes_axis(std::vector<int64_t> sizes) const;  // some of the sizes, where they stand

 private:
  double y_of(double power) const;

  double first_;
  double last_;
  int bottom_;
  int top_;
};

}  // namespace shardway::cli::svg
