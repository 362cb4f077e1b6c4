#include "app/check.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/spec/print.h"
#include "core/spec/read.h"

namespace trainer {

int run_check(const std::string& config, const std::vector<std::string>& overrides, bool json, std::ostream& out,
              std::ostream& err) {
  const std::vector<SpecProblem> problems = all_problems(read_spec(config, overrides));
  if (json) {
    auto errors = nlohmann::json::array();
    for (const SpecProblem& p : problems)
      errors.push_back({{"file", p.file},
                        {"line", p.line},
                        {"column", p.column},
                        {"key", p.key},
                        {"wanted", p.wanted},
                        {"found", p.found},
                        {"advice", p.advice}});
    // Bytes of the file that are not UTF-8 are shown as replacement characters.
    out << nlohmann::json{{"errors", errors}}.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    for (const SpecProblem& p : problems) err << to_text(p) << "\n";
    if (problems.empty()) out << "ok: " << config << "\n";
  }
  return int(problems.empty() ? Exit::done : Exit::spec);
}

int print_schema(std::ostream& out) {
  out << json_schema();
  return int(Exit::done);
}

}  // namespace trainer
