// Where the names in a plot stand: beside discs without covering any, and below each other at the ends of lines.
#pragma once

#include <string>
#include <vector>

namespace xformer::reporting {

// On the page: y grows downwards.
struct Box {
  double left = 0, top = 0, right = 0, low = 0;
  [[nodiscard]] double common(const Box& other) const;  // area
};

struct NamedDisc {
  double x = 0, y = 0, radius = 0;
  std::string name;
};

struct Label {
  Box box;              // of the text
  bool leader = false;  // it stands away from its disc: a line leads there
  double from_x = 0, from_y = 0, to_x = 0, to_y = 0;
};

// One for each disc: within the frame, over no disc, label or bar, as near as there is room.
[[nodiscard]] std::vector<Label> place_labels(const std::vector<NamedDisc>& discs, const std::vector<Box>& bars,
                                              const Box& frame);

// Heights at least `apart`, in their order, as near to the wanted as fits between top and low.
[[nodiscard]] std::vector<double> spread_out(const std::vector<double>& wanted, double apart, double top, double low);

inline constexpr double kLabelLine = 15;
[[nodiscard]] double label_width(const std::string& text);  // at 13 px, of a wide font

}  // namespace xformer::reporting
