#include "core/plan/text.h"

#include <array>
#include <charconv>
#include <concepts>
#include <iterator>
#include <sstream>

#include "core/base/error.h"

namespace trainer {
namespace {

// Every start hashes the text of all stages' plans, millions of words: format strings would take a third of planning.
class Out {
 public:
  Out& operator<<(std::string_view word) {
    text_ += word;
    return *this;
  }
  Out& operator<<(char c) {
    text_ += c;
    return *this;
  }
  template <std::integral Int>
  Out& operator<<(Int n) {
    return *this << number(n, 10);
  }
  Out& hex(uint32_t n) { return *this << "0x" << number(n, 16); }
  std::string take() { return std::move(text_); }

 private:
  template <class Int>
  std::string_view number(Int n, int base) {
    return {digits_.data(), std::to_chars(digits_.data(), digits_.data() + digits_.size(), n, base).ptr};
  }
  std::string text_;
  std::array<char, 24> digits_;
};

constexpr std::string_view kClasses[] = {"batch",    "act",     "d_act", "saved",   "stash",   "work",   "weight",
                                         "gradient", "reduced", "state", "control", "outcome", "ballot", "verdict"};
constexpr std::string_view kAccess = "rwax";
constexpr std::string_view kIndices = "mcbkps";

void put_slot(Out& out, const Slot& s) {
  out << kClasses[size_t(s.kind)] << " m" << s.microbatch << " b" << s.block << " i" << s.index << " life" << s.life
      << ' ' << name_of(s.dtype) << " [";
  for (int d = 0; d < s.shape.rank; ++d) out << (d ? ", " : "") << s.shape[d];
  out << ']';
}

void put_instr(Out& out, const Instr& i) {
  out << name_of(i.verb);
  const int16_t values[] = {i.microbatch, i.chunk, i.block, i.bucket, i.peer, i.slice};
  for (size_t k = 0; k < kIndices.size(); ++k) {
    out << ' ' << kIndices[k];
    if (values[k] < 0) out << '-';
    else out << values[k];
  }
  out << " on " << name_of(i.lane);
}

void put_plan(Out& out, const Plan& p) {
  for (const Slot& s : p.slots) {
    out << "slot ";
    put_slot(out, s);
    out << '\n';
  }
  for (const Instr& i : p.code) {
    put_instr(out, i);
    out << " seam ";
    out.hex(i.seam) << " fresh ";
    out.hex(i.fresh) << " waits";
    for (uint32_t w = i.waits[0]; w < i.waits[1]; ++w) out << ' ' << p.edges[w];
    out << " uses";
    for (uint32_t u = i.uses[0]; u < i.uses[1]; ++u)
      out << ' ' << kAccess[size_t(p.uses[u].access)] << p.uses[u].slot << '@' << p.uses[u].offset;
    out << '\n';
  }
}

// -- reading --------------------------------------------------------------------------------------------------------
template <class Enum, size_t n>
Enum named(const std::string& word) {
  for (size_t k = 0; k < n; ++k)
    if (name_of(Enum(k)) == word) return Enum(k);
  fail(Exit::usage, "unknown word `{}`", word);
}
SlotClass slot_class(const std::string& word) {
  for (size_t k = 0; k < std::size(kClasses); ++k)
    if (kClasses[k] == word) return SlotClass(k);
  fail(Exit::usage, "unknown slot class `{}`", word);
}
std::string next(std::istream& in) {
  std::string word;
  check(bool(in >> word), Exit::usage, "the line ends early");
  return word;
}
void expect(std::istream& in, std::string_view wanted) {
  const std::string found = next(in);
  check(found == wanted, Exit::usage, "wanted `{}`, found `{}`", wanted, found);
}
int16_t index_after(std::istream& in, std::string_view prefix) {  // "m3" or "m-"
  const std::string word = next(in);
  check(word.size() > prefix.size() && word.starts_with(prefix), Exit::usage, "wanted `{}` and an index, found `{}`",
        prefix, word);
  const std::string value = word.substr(prefix.size());
  return value == "-" ? int16_t(-1) : int16_t(std::stoi(value));
}

Slot parse_slot(std::istream& in) {
  Slot s{.kind = slot_class(next(in)), .shape = {}};
  s.microbatch = index_after(in, "m");
  s.block = index_after(in, "b");
  s.index = index_after(in, "i");
  s.life = index_after(in, "life");
  s.dtype = named<DType, 8>(next(in));
  std::string dims;
  std::getline(in, dims);
  dims.erase(0, dims.find('[') + 1);
  std::istringstream numbers(dims);
  for (int64_t n; s.shape.rank < 4 && numbers >> n; numbers.ignore(1)) s.shape.dims[size_t(s.shape.rank++)] = n;
  return s;
}

Instr parse_instr(std::istream& in, const std::string& verb, Plan& p) {
  Instr i{.verb = named<Verb, size_t(Verb::snapshot) + 1>(verb)};
  size_t k = 0;
  for (int16_t* f : {&i.microbatch, &i.chunk, &i.block, &i.bucket, &i.peer, &i.slice})
    *f = index_after(in, kIndices.substr(k++, 1));
  expect(in, "on");
  i.lane = named<Lane, kLanes>(next(in));
  expect(in, "seam");
  i.seam = LaneMask(std::stoul(next(in), nullptr, 16));
  expect(in, "fresh");
  i.fresh = uint32_t(std::stoul(next(in), nullptr, 16));
  expect(in, "waits");
  i.waits[0] = uint32_t(p.edges.size());
  i.uses[0] = uint32_t(p.uses.size());
  std::string word;
  while ((word = next(in)) != "uses") p.edges.push_back(InstrId(std::stoul(word)));
  while (in >> word) {
    const size_t at = word.find('@'), access = kAccess.find(word[0]);
    check(at != word.npos && access != kAccess.npos, Exit::usage, "`{}` is no use", word);
    p.uses.push_back({SlotId(std::stoul(word.substr(1, at - 1))), Access(access), std::stoull(word.substr(at + 1))});
  }
  i.waits[1] = uint32_t(p.edges.size());
  i.uses[1] = uint32_t(p.uses.size());
  return i;
}

}  // namespace

std::string to_text(const Slot& s) {
  Out out;
  put_slot(out, s);
  return out.take();
}
std::string to_text(const Instr& i) {
  Out out;
  put_instr(out, i);
  return out.take();
}
std::string to_text(const Plan& p) {
  Out out;
  put_plan(out, p);
  return out.take();
}

std::string to_text(const Program& p) {
  Out out;
  out << fmt::format("program hash {:016x} arena {} control {} outcome {}\n", p.hash, p.arena_bytes, p.control_offset,
                     p.outcome_offset);
  for (size_t b = 0; b < p.buckets.size(); ++b)
    out << fmt::format("bucket {} of {} parameters, {} elements padded to {}{}\n", b, p.buckets[b].params.size(),
                       p.buckets[b].size, p.buckets[b].padded, p.buckets[b].tied ? ", tied" : "");
  for (const StateSlot& s : p.state)
    out << fmt::format("state k{} i{} {} [{}, {}) @{}\n", s.bucket, s.index, name_of(s.dtype), s.begin, s.end,
                       s.offset);
  for (size_t l = 0; l < kLanes; ++l)
    if (p.scratch[l]) out << fmt::format("scratch {} {} @{}\n", name_of(Lane(l)), p.scratch[l], p.scratch_offset[l]);
  for (const auto& [key, plan] : p.plans) {
    out << fmt::format("plan {} microbatches {} seq_len {}\n", name_of(key.kind), key.microbatches, key.seq_len);
    put_plan(out, plan);
  }
  return out.take();
}

Plan parse_plan(const std::string& text) {
  Plan p;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) try {
      ++number;
      std::istringstream in(line);
      const std::string word = next(in);
      if (word == "slot") p.slots.push_back(parse_slot(in));
      else p.code.push_back(parse_instr(in, word, p));
    } catch (const std::exception& e) { fail(Exit::usage, "[plan text] line {}: {}: {}", number, e.what(), line); }
  for (const Use& u : p.uses)
    check(u.slot < p.slots.size(), Exit::usage, "[plan text] slot {} is used, there are {}", u.slot, p.slots.size());
  return p;
}

}  // namespace trainer
