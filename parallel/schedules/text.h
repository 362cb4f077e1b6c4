// Orders as text: a line per stage, a word per action: F forward, B backward, or its halves I (input) and W (weight);
// then the micro-batch, a point and the chunk: `F0.0 F1.0 B0.0 ...`. Chunk 0 may be left out: `F3`. `#` begins a
// comment. Before the stages, a line `placement vee` or `placement looped` (which is what holds without one) says where
// chunks lie.
#pragma once
#include "core/plan/schedule.h"

namespace trainer {

struct WrittenOrders {
  Placement placement = Placement::looped;
  Orders orders;
  std::vector<std::vector<std::pair<int, int>>> marks;  // line and column of each action, from 1
  int stages() const { return int(orders.size()); }
  int chunks() const;        // the largest there is, and one
  int microbatches() const;  // the same
};

std::string to_text(const Action&);
std::string to_text(const Orders&, Placement);

// Throws Error(spec) with `name:line:column` where the text is not in this form.
WrittenOrders parse_orders(std::string_view text, std::string_view name);

}  // namespace trainer
