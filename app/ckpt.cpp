#include "app/ckpt.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/ckpt_diff.h"
#include "app/ckpt_hf.h"
#include "io/commit.h"
#include "io/restore.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string a, b, out, format = "hf";
  bool json = false;
};

std::vector<int64_t> dims_of(const Shape& s) { return {s.dims.begin(), s.dims.begin() + s.rank}; }

uint64_t bytes_of(const Manifest& m) {
  uint64_t bytes = 0;
  for (const FileRecord& f : m.files) bytes += f.bytes;
  return bytes;
}

int list(const std::string& directory) {
  const std::vector<StepPath> steps = list_steps(directory);
  check(!steps.empty(), Exit::checkpoint, "{}: holds no step-N directory", directory);
  for (const StepPath& s : steps) {
    try {
      const Manifest m = open_checkpoint(s.path).manifest;
      fmt::print("{}  {} tokens  {:.1f} MB  state {}\n", s.path, m.run.tokens, double(bytes_of(m)) / 1e6,
                 hex(m.state_hash));
    } catch (const Error& e) { fmt::print("{}  refused: {}\n", s.path, e.what()); }
  }
  return int(Exit::done);
}

Json inspection(const Manifest& m) {
  Json tensors = Json::array(), files = Json::array();
  for (const StoredTensor& t : m.tensors)
    tensors.push_back({{"name", t.name}, {"dtype", t.type->name}, {"shape", dims_of(t.shape)}});
  for (const FileRecord& f : m.files) files.push_back({{"name", f.name}, {"bytes", f.bytes}});
  return {{"step", m.run.step},
          {"model", m.run.model},
          {"state_hash", hex(m.state_hash)},
          {"data_hash", hex(m.run.data_hash)},
          {"plan_hash", hex(m.run.plan_hash)},
          {"tokens", m.run.tokens},
          {"samples", m.run.samples},
          {"seed", m.run.seed},
          {"generation", m.generation},
          {"tensors", tensors},
          {"files", files}};
}

int inspect(const Options& o) {
  const Manifest m = open_checkpoint(o.a).manifest;
  if (o.json) {
    std::cout << inspection(m).dump() << "\n";
    return int(Exit::done);
  }
  fmt::print("step {}, {} tokens, next sample {}\nstate {}  data {}  plan {}\nmodel {}\n", m.run.step, m.run.tokens,
             m.run.samples, hex(m.state_hash), hex(m.run.data_hash), hex(m.run.plan_hash), m.run.model.dump());
  for (const StoredTensor& t : m.tensors)
    fmt::print("  {:<64} {:<5} [{}]\n", t.name, t.type->name, fmt::join(dims_of(t.shape), ", "));
  for (const FileRecord& f : m.files) fmt::print("{}  {} bytes\n", f.name, f.bytes);
  return int(Exit::done);
}

int verify(const Options& o) {
  const std::vector<Problem> problems = verify_checkpoint(o.a);
  if (o.json) {
    Json json{{"ok", problems.empty()}, {"problems", Json::array()}};
    for (const Problem& p : problems)
      json["problems"].push_back({{"file", p.file}, {"tensor", p.tensor}, {"offset", p.offset}, {"what", p.what}});
    std::cout << json.dump() << "\n";
  } else {
    for (const Problem& p : problems) fmt::print("{}: {} offset {}: {}\n", p.file, p.tensor, p.offset, p.what);
    if (problems.empty()) fmt::print("{}: every byte verifies\n", o.a);
  }
  return int(problems.empty() ? Exit::done : Exit::checkpoint);
}

int diff(const Options& o) {
  const Checkpoint a = open_checkpoint(o.a), b = open_checkpoint(o.b);
  const std::vector<std::string> found = differences(a, b);
  for (const std::string& text : found) fmt::print("{}\n", text);
  if (!found.empty()) return int(Exit::difference);
  fmt::print("equal: state {}, {} tensors\n", hex(a.manifest.state_hash), a.manifest.tensors.size());
  return int(Exit::done);
}

void check_format(const Options& o) {
  check(o.format == "hf", Exit::usage, "--format: wanted hf, found '{}'", o.format);
}

int import_model(const Options& o) {
  check_format(o);
  fmt::print("{}\n", import_hugging_face(o.a, o.out));
  return int(Exit::done);
}

int export_model(const Options& o) {
  check_format(o);
  export_hugging_face(o.a, o.out);
  fmt::print("{}\n", o.out);
  return int(Exit::done);
}

CLI::App* add_one(CLI::App& ckpt, const char* name, const char* help, const std::shared_ptr<Options>& o,
                  const char* what) {
  CLI::App* command = ckpt.add_subcommand(name, help);
  command->add_option(what, o->a)->required();
  return command;
}

}  // namespace

void add_ckpt_commands(CLI::App& app, int& exit_code) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "look at checkpoints, compare them, exchange them with Hugging Face");
  ckpt->require_subcommand(1);
  const auto o = std::make_shared<Options>();
  CLI::App* command = add_one(*ckpt, "list", "the steps of a checkpoint directory, newest first", o, "DIR");
  command->callback([o, &exit_code] { exit_code = list(o->a); });

  command = add_one(*ckpt, "inspect", "what a step holds", o, "STEP_DIR");
  command->add_flag("--json", o->json, "print one JSON object");
  command->callback([o, &exit_code] { exit_code = inspect(*o); });

  command = add_one(*ckpt, "verify", "read every byte of a step and check it", o, "STEP_DIR");
  command->add_flag("--json", o->json, "print one JSON object");
  command->callback([o, &exit_code] { exit_code = verify(*o); });

  command = add_one(*ckpt, "diff", "exit 1 where two steps differ", o, "A");
  command->add_option("B", o->b)->required();
  command->callback([o, &exit_code] { exit_code = diff(*o); });

  command = add_one(*ckpt, "import", "make step-0 of another program's model", o, "SRC");
  command->add_option("--format", o->format, "hf: a Hugging Face directory");
  command->add_option("--out", o->out, "checkpoint directory")->required();
  command->callback([o, &exit_code] { exit_code = import_model(*o); });

  command = add_one(*ckpt, "export", "write the weights of a step for another program", o, "STEP_DIR");
  command->add_option("--format", o->format, "hf: a Hugging Face directory");
  command->add_option("--out", o->out, "directory to make")->required();
  command->callback([o, &exit_code] { exit_code = export_model(*o); });
}

}  // namespace trainer
