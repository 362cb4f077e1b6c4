// What is wrong with a run spec: where, what was wanted, what was found, what to do.
#pragma once
#include <string>
#include <vector>

#include "core/base/error.h"

namespace trainer {

// file "command line": line is the argument's number. Lines and columns count from 1.
struct SpecProblem {
  std::string file;
  int line = 1, column = 1;
  std::string key, wanted, found, advice;
};
std::string to_text(const SpecProblem&);  // file:line:column: key: wanted X, found Y; advice

inline constexpr const char* kCommandLine = "command line";

// One line per problem.
class SpecError : public Error {
 public:
  explicit SpecError(std::vector<SpecProblem>);
  const std::vector<SpecProblem>& problems() const { return problems_; }

 private:
  std::vector<SpecProblem> problems_;
};

}  // namespace trainer
