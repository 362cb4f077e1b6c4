#include "core/spec/problem.h"

#include <utility>

namespace trainer {
namespace {

std::string all_lines(const std::vector<SpecProblem>& problems) {
  std::string text;
  for (const SpecProblem& p : problems) text.append(text.empty() ? "" : "\n").append(to_text(p));
  return text;
}

}  // namespace

std::string to_text(const SpecProblem& p) {
  return fmt::format("{}:{}:{}: {}wanted {}, found {}{}", p.file, p.line, p.column, p.key.empty() ? "" : p.key + ": ",
                     p.wanted, p.found, p.advice.empty() ? "" : "; " + p.advice);
}

SpecError::SpecError(std::vector<SpecProblem> problems)
    : Error(Exit::spec, all_lines(problems)), problems_(std::move(problems)) {}

}  // namespace trainer
