// `trainer check`: every problem of a run spec at once.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace trainer {

// Prints one line per problem to `err`, or with `json` {"errors": [{file, line, column, key, wanted, found, advice}]}
// to `out`. Returns the exit code: 10 where there is a problem, else 0.
int run_check(const std::string& config, const std::vector<std::string>& overrides, bool json, std::ostream& out,
              std::ostream& err);

// `trainer check --schema`: the JSON Schema of run specs. Returns 0.
int print_schema(std::ostream& out);

}  // namespace trainer
