#include "io/votes.h"

#include <charconv>

#include "core/base/error.h"

namespace trainer {
namespace {

constexpr char kYes = '+', kNo = '-';  // the first letter of a vote; a no goes on with exit code, space, sentence

[[noreturn]] void raise(const std::string& no, int rank, int size) {
  int code = 0;
  const size_t space = no.find(' ');
  std::from_chars(no.data() + 1, no.data() + space, code);
  const std::string why = no.substr(space + 1);
  fail(Exit(code), "{}", size == 1 ? why : fmt::format("rank {}: {}", rank, why));
}

}  // namespace

std::vector<std::string> agree(const Votes& votes, const std::function<std::string()>& work) {
  std::string mine;
  try {
    mine = kYes + work();
  } catch (const Error& e) { mine = fmt::format("{}{} {}", kNo, int(e.code()), e.what()); }
  std::vector<std::string> said = votes.all_gather(mine);
  for (size_t r = 0; r < said.size(); ++r)
    if (said[r].starts_with(kNo)) raise(said[r], int(r), votes.size);
  for (std::string& s : said) s.erase(0, 1);
  return said;
}

std::string agree_on_first(const Votes& votes, const std::function<std::string()>& work) {
  return agree(votes, [&] { return votes.rank == 0 ? work() : std::string(); }).front();
}

}  // namespace trainer
