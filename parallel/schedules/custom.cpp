// A schedule that is written in a file (text.h says how).
#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "parallel/schedules/problem.h"
#include "parallel/schedules/schedules.h"
#include "parallel/schedules/text.h"

namespace trainer {

WrittenOrders read_orders(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  check(bool(in), Exit::spec, "[pipeline] {} cannot be read: wanted a file with a line of actions per stage", file);
  return parse_orders(text.str(), file);
}

// A step of fewer micro-batches than the file has, such as an evaluation, leaves the last ones out.
Orders custom(const PipeShape& p, const Limits& limits) {
  WrittenOrders written = read_orders(limits.file);
  const PipeShape shape{written.stages(), written.chunks(), written.microbatches()};
  check(shape.stages == p.stages && shape.chunks == p.chunks, Exit::spec,
        "[pipeline] {} is written for {} stages of {} chunks, found pp {} and virtual_stages {}", limits.file,
        shape.stages, shape.chunks, p.stages, p.chunks);
  check(shape.microbatches >= p.microbatches, Exit::spec,
        "[pipeline] {} is written for {} micro-batches, but a step has {}: use at most {}", limits.file,
        shape.microbatches, p.microbatches, shape.microbatches);
  if (const auto problem = find_problem(written.orders, shape, written.placement)) {
    const auto& marks = written.marks[size_t(problem->stage)];
    const auto [line, column] = marks[std::min(size_t(problem->action), marks.size() - 1)];
    fail(Exit::spec, "{}:{}:{}: stage {}: {}", limits.file, line, column, problem->stage, problem->what);
  }
  for (auto& order : written.orders)
    std::erase_if(order, [&](const Action& a) { return a.microbatch >= p.microbatches; });
  return std::move(written.orders);
}

}  // namespace trainer
