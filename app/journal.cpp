#include "app/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "app/process_stats.h"
#include "core/base/host.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

// JSON has no NaN: what is not finite is null, and its hex float says which.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

int next_attempt(const std::string& events_path) {
  std::ifstream in(events_path);
  int attempt = 1;
  for (std::string line; std::getline(in, line);) attempt += line.find("\"event\":\"start\"") != std::string::npos;
  return attempt;
}

// "comm 12.1 % (gather 3.0, reduce 9.1), ", or nothing in a world of one.
nlohmann::ordered_json time_fields(const std::optional<TimeSplit>& t) {
  const TimeSplit split = t.value_or(TimeSplit{});
  nlohmann::ordered_json fields{{"compute", split.compute},
                                {"exposed_comm", split.exposed_comm},
                                {"data_wait", split.data_wait},
                                {"checkpoint", split.checkpoint},
                                {"other", split.other}};
  if (!t)
    for (auto& [name, seconds] : fields.items()) seconds = nullptr;
  return fields;
}

std::string exposed_text(const StepRecord& r) {
  std::string parts;
  const auto add = [&](const char* name, double seconds) {
    if (const double share = 100 * seconds / r.step_seconds; share >= 0.05)
      parts += fmt::format("{}{} {:.1f}", parts.empty() ? "" : ", ", name, share);
  };
  add("gather", r.exposed.gather);
  add("reduce", r.exposed.reduce);
  add("tp", r.exposed.tp);
  add("pipe", r.exposed.pipe);
  add("exchange", r.exposed.exchange);
  add("outcome", r.exposed.outcome);
  return parts.empty() ? "" : fmt::format("comm {:.1f} % ({}), ", 100 * r.time->exposed_comm / r.step_seconds, parts);
}

}  // namespace

std::string hex_float(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", double(float(value)));
  return text;
}
std::string short_number(double value) {
  if (value >= 1e9) return fmt::format("{:.2f}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}
std::string short_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, kUnits[unit]);
}

Journal::Files::Files(const RunDirectory& d)
    : attempt(next_attempt(d.file("events.jsonl"))), metrics(d.file("metrics.jsonl")), events(d.file("events.jsonl")) {}

Journal::Journal(const RunDirectory& directory, const RunSpec& spec, const Setting& setting, bool keeper)
    : setting_(setting), log_every_(spec.log.every) {
  if (!keeper) return;
  files_.emplace(directory);
  if (spec.log.tensorboard) tensorboard_ = std::make_unique<TensorBoard>(directory.path());
  progress_.emplace(setting.first, setting.total);
}

void Journal::step(const StepRecord& r) {
  if (!files_) return;
  progress_->show(r.report.step, fmt::format("step {}/{}  loss {:.4f}  {} tokens/s", r.report.step, setting_.total,
                                             r.report.loss, short_number(r.report.tokens / r.step_seconds)));
  if (r.report.step % log_every_ != 0 && r.report.step != setting_.total) return;
  const double rate = r.report.tokens / r.step_seconds;
  // No peak is known for a CPU, so there is no MFU: never a fallback.
  files_->metrics.write({{"kind", "step"},
                         {"step", r.report.step},
                         {"loss", number(r.report.loss)},
                         {"loss_hex", hex_float(r.report.loss)},
                         {"grad_norm", number(r.report.grad_norm)},
                         {"grad_norm_hex", hex_float(r.report.grad_norm)},
                         {"lr", r.lr},
                         {"tokens", r.tokens},
                         {"tokens_per_second", rate},
                         {"flops_per_second",
                          {{"simple", rate * setting_.flops.simple},
                           {"exact_full", rate * setting_.flops.exact_full},
                           {"exact_causal", rate * setting_.flops.exact_causal}}},
                         {"step_seconds", r.step_seconds},
                         {"time", time_fields(r.time)},
                         {"mfu", {{"simple", nullptr}, {"exact_full", nullptr}, {"exact_causal", nullptr}}},
                         {"data_hash", fmt::format("{:016x}", r.report.data_hash)},
                         {"attempt", files_->attempt},
                         {"comm_bytes",
                          {{"gather", r.comm.gather},
                           {"reduce", r.comm.reduce},
                           {"tp", r.comm.tp},
                           {"pipe", r.comm.pipe},
                           {"exchange", r.comm.exchange}}},
                         {"arena_bytes", setting_.arena_bytes},
                         {"peak_rss", peak_rss_bytes()}});
  if (tensorboard_) {
    tensorboard_->scalar(r.report.step, "train/loss", r.report.loss);
    tensorboard_->scalar(r.report.step, "train/grad_norm", r.report.grad_norm);
    tensorboard_->scalar(r.report.step, "train/lr", r.lr);
    tensorboard_->scalar(r.report.step, "train/tokens_per_second", rate);
    tensorboard_->flush();
  }
  show(r);
}

// At most one line in five seconds, so that a small model's log stays readable; metrics.jsonl has every step.
void Journal::show(const StepRecord& r) {
  const auto now = Clock::now();
  const bool edge = r.report.step <= 3 || r.report.step == setting_.total;
  if (!edge && now - last_line_ < std::chrono::seconds(5)) return;
  if (isatty(STDERR_FILENO) && !edge) return;  // the progress bar says it
  last_line_ = now;
  const double rate = r.report.tokens / r.step_seconds;
  const auto percent = [&](double seconds) { return fmt::format("{:.1f} %", 100 * seconds / r.step_seconds); };
  std::string line =
      fmt::format("step {:>6}/{}  loss {:.4f}  norm {:.3f}  lr {:.3g}  {} tokens/s  {} FLOP/s  {:.1f} ms",
                  r.report.step, setting_.total, r.report.loss, r.report.grad_norm, r.lr, short_number(rate),
                  short_number(rate * setting_.flops.simple), 1e3 * r.step_seconds);
  if (r.time)
    line += fmt::format("  (compute {}, {}data {}, other {})", percent(r.time->compute), exposed_text(r),
                        percent(r.time->data_wait), percent(r.time->other));
  say(line);
}

void Journal::evaluation(int64_t step, double loss, double tokens) {
  if (!files_) return;
  files_->metrics.write({{"kind", "eval"},
                         {"step", step},
                         {"val_loss", number(loss)},
                         {"val_loss_hex", hex_float(loss)},
                         {"tokens", int64_t(tokens)},
                         {"attempt", files_->attempt}});
  if (tensorboard_) {
    tensorboard_->scalar(step, "valid/loss", loss);
    tensorboard_->flush();
  }
  say(fmt::format("step {:>6}/{}  validation loss {:.4f}  ({} tokens)", step, setting_.total, loss,
                  short_number(tokens)));
}

void Journal::event(const std::string& name, int64_t step, const Json& fields) {
  if (!files_) return;
  const auto seconds = [](auto t) { return std::chrono::duration<double>(t.time_since_epoch()).count(); };
  Json line{{"event", name},
            {"step", step},
            {"rank", 0},
            {"host", host_name()},
            {"monotonic", seconds(Clock::now())},
            {"time", seconds(std::chrono::system_clock::now())}};
  line.update(fields);
  files_->events.write(line);
}

void Journal::say(const std::string& line) {
  if (!files_) return;
  progress_->clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace trainer
