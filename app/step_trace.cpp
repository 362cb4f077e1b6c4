#include "app/step_trace.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "parallel/trace.h"

namespace trainer {

std::string trace_of_step(Exchange& exchange, const Mesh& mesh, const Plan& plan, std::vector<Span> spans) {
  const auto is_last_meeting = [](const Instr& i) { return i.verb == Verb::agree || i.verb == Verb::vote; };
  const auto agree = std::find_if(plan.code.rbegin(), plan.code.rend(), is_last_meeting).base() - 1;
  const double agreed = spans[size_t(agree - plan.code.begin())].end;
  double first = agreed;
  for (const Span& s : spans) first = std::min(first, s.begin);
  double longest = 0;  // from a rank's first instruction to the agreement
  for (const std::string& seconds : exchange.all_gather(fmt::format("{}", agreed - first)))
    longest = std::max(longest, std::stod(seconds));
  for (Span& s : spans) s = {s.begin - agreed + longest, s.end - agreed + longest};
  std::ostringstream text;
  write_trace(text, exchange.all_gather(trace_events(mesh, plan, spans)));
  return text.str();
}

}  // namespace trainer
