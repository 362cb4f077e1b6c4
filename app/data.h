// `trainer data`: text to packed tokens, a look into them, a check of them, and vocabularies.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "io/documents.h"
#include "io/tokenizer.h"

namespace CLI {
class App;
}

namespace trainer {

struct PackOptions {
  std::string tokenizer;  // bytes | chars | a .model
  std::string out;        // prefix of the .bin, .idx and .json
  DocumentRule documents = DocumentRule::file;
  std::vector<std::string> files;
};
struct ShowOptions {
  std::string prefix;
  bool json = false;
  int64_t vocab_size = 0;  // to check ids against where there is no manifest
};

// Each writes a readable summary, or one JSON object, to `out`; bad input is Error(data).
void pack_text(const PackOptions&, std::ostream& out);
void inspect_data(const ShowOptions&, std::ostream& out);
void verify_data(const ShowOptions&, std::ostream& out);
void make_vocabulary(const TokenizerTraining&, std::ostream& out);

// Adds `data` with its subcommands; the one that is given runs within app.parse() and may throw Error.
void add_data_commands(CLI::App& app, std::ostream& out);

}  // namespace trainer
